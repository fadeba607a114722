//! Every operation of the device beside the CPU's, on the emulator or, with `PRUDENCE_TEST_GPU=1`, on the first card.
#![allow(missing_docs)]

mod emulator;

use prudence_core::random::{StreamId, stream};
use prudence_cuda::Cuda;
use prudence_nn::work::*;
use prudence_nn::{AdamSettings, Bank, Cpu, Device, Gru, Mlp, Precision, Shape};
use rand::RngExt as _;

fn cuda() -> Cuda {
    if std::env::var_os("PRUDENCE_TEST_GPU").is_none() {
        return emulator::cuda();
    }
    let cards = prudence_cuda::cards().unwrap();
    let kernels = cards[0].compile_kernels().unwrap();
    cards[0].open(&kernels).unwrap()
}

/// How close results must be.
#[derive(Clone, Copy, PartialEq)]
enum Close {
    /// The CPU's bits in f32.
    Same,
    /// Those in f64, up to this part of the largest number.
    Within(f64),
}

/// Arrays that a test made, by name.
type Results = Vec<(String, Vec<f32>)>;

/// The inputs of a test, drawn the same for every device.
struct Draw<'a, D: Device> {
    device: &'a D,
    rng: prudence_core::random::Stream,
    results: Results,
}

impl<'a, D: Device> Draw<'a, D> {
    fn new(device: &'a D, name: &str) -> Self {
        Self { device, rng: stream(7, name, 0), results: Vec::new() }
    }

    fn numbers(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.rng.random_range(-1.0f32..1.0)).collect()
    }

    fn put(&mut self, numbers: &[f32]) -> D::Buf {
        let mut buffer = self.device.buffer(numbers.len()).unwrap();
        self.device.write(&mut buffer, 0, numbers);
        buffer
    }

    fn buffer(&mut self, n: usize) -> D::Buf {
        let numbers = self.numbers(n);
        self.put(&numbers)
    }

    fn scaled(&mut self, n: usize, by: f32) -> D::Buf {
        let numbers: Vec<f32> = self.numbers(n).iter().map(|x| x * by).collect();
        self.put(&numbers)
    }

    fn rows(&mut self, rows: &[u32]) -> D::Rows {
        let mut buffer = self.device.rows(rows.len()).unwrap();
        self.device.write_rows(&mut buffer, 0, rows);
        buffer
    }

    fn keep(&mut self, name: &str, buffer: &D::Buf, n: usize) {
        let mut numbers = vec![0.0; n];
        self.device.read(buffer, 0, &mut numbers).unwrap();
        self.results.push((name.to_owned(), numbers));
    }

    /// Parameters of a bank that lies with gaps in its buffer.
    fn parameters<S: Shape>(&mut self, shape: S, groups: usize) -> (Bank<S>, D::Buf) {
        let net = Bank { offset: 3, stride: shape.parameters() + 5, groups, shape };
        let n = net.offset + net.groups * net.stride;
        let parameters = self.scaled(n, 0.3);
        (net, parameters)
    }
}

/// A test that runs on any device.
trait Scenario {
    fn run<D: Device>(&self, device: &D) -> Results;
}

fn compare(scenario: &impl Scenario, close: Close) {
    compare_on(&cuda(), scenario, close);
}

fn compare_on(device: &Cuda, scenario: &impl Scenario, close: Close) {
    let (exact, here, there) =
        (scenario.run(&Cpu::<f64>::new()), scenario.run(&Cpu::<f32>::new()), scenario.run(device));
    for (((name, exact), (_, here)), (_, there)) in exact.iter().zip(&here).zip(&there) {
        match close {
            Close::Same => {
                let (here, there): (Vec<u32>, Vec<u32>) =
                    (here.iter().map(|x| x.to_bits()).collect(), there.iter().map(|x| x.to_bits()).collect());
                let place = here.iter().zip(&there).position(|(a, b)| a != b);
                assert_eq!(
                    place,
                    None,
                    "{name}: {:?}",
                    place.map(|i| (f32::from_bits(here[i]), f32::from_bits(there[i])))
                );
            }
            Close::Within(share) => {
                let largest = exact.iter().fold(1e-30, |largest, x| f64::from(x.abs()).max(largest));
                let worst = |numbers: &[f32]| {
                    let off = numbers.iter().zip(exact).map(|(a, b)| f64::from(a - b).abs() / largest);
                    off.fold(0.0, |worst: f64, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) })
                };
                assert!(worst(there) <= share, "{name}: off by {:.1e} (the CPU: {:.1e})", worst(there), worst(here));
            }
        }
        assert!(there.iter().any(|x| *x != 0.0), "{name}: nothing was computed");
    }
}

struct Dense {
    sizes: Vec<usize>,
    groups: usize,
    rows: usize,
    share: usize,
    second: usize,
}

impl Scenario for Dense {
    fn run<D: Device>(&self, device: &D) -> Results {
        let Self { sizes, groups, rows, share, second } = self;
        let (groups, rows, share, second) = (*groups, *rows, *share, *second);
        let mut draw = Draw::new(device, "dense");
        let shape = Mlp::new(sizes[0], &sizes[1..sizes.len() - 1], sizes[sizes.len() - 1]);
        let (net, weights) = draw.parameters(shape, groups);
        let first_width = sizes[0] - second;
        let first = draw.buffer(groups / share * rows * first_width);
        let other = draw.buffer(groups * rows * second + 1);
        let input = Input {
            first: Columns::new(&first, rows, first_width, share),
            second: (second > 0).then(|| Columns::new(&other, rows, second, 1)),
        };
        let mut pass = Pass::new(device, &net, rows).unwrap();
        device.forward(&net, &weights, input, &mut pass);
        let n = groups * rows * net.shape.outputs();
        draw.keep("output", pass.output(), n);
        let numbers = draw.numbers(n);
        device.write(pass.output_gradient(), 0, &numbers);
        let mut gradients = device.buffer(net.offset + groups * net.stride).unwrap();
        device.backward(&net, &weights, input, &mut pass, &mut gradients);
        draw.keep("gradients", &gradients, net.offset + groups * net.stride);
        let (start, columns) = (first_width / 2, sizes[0] - first_width / 2);
        let stride = rows * columns + 7;
        let mut of_input = device.buffer(groups * stride).unwrap();
        device.input_gradient(&net, &weights, &pass, start, &mut of_input, stride);
        draw.keep("input gradient", &of_input, groups * stride);
        let mut of_action = device.buffer(groups / share * rows * columns).unwrap();
        device.write(pass.output_gradient(), 0, &numbers);
        device.action_gradient(&net, &weights, &mut pass, share, start, &mut of_action);
        draw.keep("action gradient", &of_action, groups / share * rows * columns);
        draw.results
    }
}

fn dense(sizes: &[usize], [groups, rows, share, second]: [usize; 4]) -> Dense {
    Dense { sizes: sizes.to_vec(), groups, rows, share, second }
}

#[test]
fn dense_networks_agree() {
    compare(&dense(&[23, 64, 48, 1], [4, 70, 2, 0]), Close::Within(2e-6)); // small tiles; one output
    compare(&dense(&[9, 132, 131, 12], [2, 130, 2, 4]), Close::Within(2e-6)); // large tiles, two inputs, odd widths
    compare(&dense(&[6, 40, 3], [3, 5, 1, 2]), Close::Within(2e-6)); // few rows
    compare(&dense(&[7, 5], [2, 20, 1, 0]), Close::Within(2e-6)); // a single layer
    compare(&dense(&[33, 34, 33], [2, 9, 2, 0]), Close::Within(2e-6));
    compare(&dense(&[10, 160, 96, 1], [3, 70, 1, 0]), Close::Within(2e-6)); // rows of fours at odd addresses
}

#[test]
fn sums_over_many_rows_are_split() {
    compare(&dense(&[5, 33, 2], [2, 2500, 1, 0]), Close::Within(2e-6));
}

#[test]
fn reduced_precision_is_reduced_and_no_more() {
    let device = cuda().with_precision(Precision::Tf32);
    // Without a hidden layer: where a unit is close to 0, another rounding turns it on or off.
    compare_on(&device, &dense(&[140, 136], [2, 140, 1, 0]), Close::Within(1e-3));
    compare_on(&device, &dense(&[50, 40], [2, 70, 1, 10]), Close::Within(1e-3));
    let outputs = |device: &Cuda| dense(&[50, 40], [2, 70, 1, 10]).run(device).swap_remove(0).1;
    assert!(outputs(&device) != outputs(&cuda()), "the products were not in tf32");
}

/// A network's outputs alone, which change little where another rounding turns a hidden unit on or off.
struct Outputs(Dense);

impl Scenario for Outputs {
    fn run<D: Device>(&self, device: &D) -> Results {
        self.0.run(device).into_iter().take(1).collect()
    }
}

#[test]
fn hidden_layers_tolerate_reduced_precision() {
    let device = cuda().with_precision(Precision::Tf32);
    compare_on(&device, &Outputs(dense(&[87, 64, 64, 1], [4, 70, 2, 6])), Close::Within(1e-3)); // all layers at once
    compare_on(&device, &Outputs(dense(&[30, 48, 20], [3, 65, 1, 0])), Close::Within(1e-3));
    compare_on(&device, &Outputs(dense(&[87, 160, 130, 12], [2, 130, 1, 6])), Close::Within(1e-3)); // layer by layer
}

struct Recurrent {
    inputs: usize,
    hidden: usize,
    groups: usize,
    rows: usize,
    steps: usize,
    share: usize,
}

impl Scenario for Recurrent {
    fn run<D: Device>(&self, device: &D) -> Results {
        let Self { inputs, hidden, groups, rows, steps, share } = *self;
        let mut draw = Draw::new(device, "gru");
        let (net, weights) = draw.parameters(Gru { inputs, hidden }, groups);
        let x = draw.buffer(groups / share * steps * rows * inputs);
        let input = Columns::new(&x, steps * rows, inputs, share);
        let mut pass = GruPass::new(device, &net, steps + 2, rows).unwrap();
        pass.set_steps(device, &net, steps).unwrap();
        device.gru_forward(&net, &weights, input, &mut pass);
        let memories = groups * (steps + 1) * rows * hidden;
        draw.keep("memories", pass.hidden(), memories);
        let dh = draw.buffer(memories);
        let mut gradients = device.buffer(net.offset + groups * net.stride).unwrap();
        let mut dx = device.buffer(groups * steps * rows * inputs).unwrap();
        device.gru_backward(&net, &weights, input, &dh, &mut pass, &mut gradients, Some(&mut dx));
        draw.keep("gradients", &gradients, net.offset + groups * net.stride);
        draw.keep("input gradients", &dx, groups * steps * rows * inputs);
        let mut one = GruPass::new(device, &net, 1, rows).unwrap();
        let mut memory = draw.buffer(groups * rows * hidden);
        let x = draw.buffer(groups / share * rows * inputs);
        device.gru_step(&net, &weights, Columns::new(&x, rows, inputs, share), &mut memory, &mut one);
        draw.keep("memory after a step", &memory, groups * rows * hidden);
        draw.results
    }
}

#[test]
fn recurrent_networks_agree() {
    for (hidden, rows, steps) in
        [(16, 5, 40), (11, 4, 7), (32, 3, 20), (64, 2, 9), (50, 3, 9), (70, 2, 5), (16, 300, 9)]
    {
        let scenario = Recurrent { inputs: 10, hidden, groups: 4, rows, steps, share: 2 };
        compare(&scenario, Close::Within(6e-6)); // tensor cores cut off what other units round
    }
}

struct Normals;

impl Scenario for Normals {
    fn run<D: Device>(&self, device: &D) -> Results {
        let mut draw = Draw::new(device, "normals");
        let addresses: Vec<u32> = [(1, 0), (2, 5), (9, u64::from(u32::MAX))]
            .iter()
            .flat_map(|(i, block)| StreamId::new(3, "x", *i).address(*block))
            .collect();
        let addresses = draw.rows(&addresses);
        let mut out = device.buffer(3 * 1023).unwrap();
        device.normals(&addresses, 1023, &mut out);
        draw.keep("normals", &out, 3 * 1023);
        draw.results
    }
}

/// Rows of a policy's head, from a network without hidden layers.
fn head<D: Device>(draw: &mut Draw<'_, D>, agents: usize, rows: usize, width: usize) -> Pass<D> {
    let net = Bank::dense(Mlp::new(1, &[], 2 * width), agents);
    let mut pass = Pass::new(draw.device, &net, rows).unwrap();
    let numbers: Vec<f32> = draw.numbers(agents * rows * 2 * width).iter().map(|x| x * 7.0).collect();
    let last = pass.activations.len() - 1;
    draw.device.write(&mut pass.activations[last], 0, &numbers);
    pass
}

struct Policy;

impl Scenario for Policy {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (agents, rows, width, clip) = (3, 33, 5, LogStd { min: -5.0, max: 2.0 });
        let n = agents * rows * width;
        let mut draw = Draw::new(device, "policy");
        let mut pass = head(&mut draw, agents, rows, width);
        let noise = draw.scaled(n, 3.0);
        let mut drawn = Drawn::new(device, agents * rows, width).unwrap();
        device.sample(&pass, &noise, clip, &mut drawn);
        draw.keep("actions", &drawn.action, n);
        draw.keep("log pi", &drawn.log_prob, agents * rows);
        let (action_gradient, log_temperature) = (draw.buffer(n), draw.buffer(agents));
        let backward = SampleBackward {
            noise: &noise,
            clip,
            drawn: &drawn,
            action_gradient: &action_gradient,
            log_temperature: &log_temperature,
        };
        device.sample_backward(&mut pass, backward);
        let gradient = pass.output_and_gradient().1;
        let mut numbers = vec![0.0; 2 * n];
        device.read(gradient, 0, &mut numbers).unwrap();
        draw.results.push(("head's gradient".to_owned(), numbers));
        device.mode(&pass, &mut drawn.action);
        draw.keep("modes", &drawn.action, n);
        draw.results
    }
}

/// `exact`: whether the results without sums over the batch are wanted, or those with.
struct Critics {
    exact: bool,
}

impl Scenario for Critics {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (agents, rows) = (3, 300);
        let n = agents * rows;
        let mut draw = Draw::new(device, "critics");
        let net = Bank::dense(Mlp::new(1, &[], 1), agents * 4);
        let mut pass = Pass::new(device, &net, rows).unwrap();
        let values = draw.numbers(agents * 4 * rows);
        device.write(&mut pass.activations[0], 0, &values);
        let (signal, not_terminal) = (draw.buffer(n), draw.buffer(n));
        let (log_prob, log_temperature) = (draw.buffer(n), draw.buffer(agents));
        let heads = [
            HeadPlace { index: 0, heads: 2, first: 0, networks: 2, of: 4 },
            HeadPlace { index: 1, heads: 2, first: 2, networks: 2, of: 4 },
        ];
        let weights = draw.put(&[1.0, 0.3, 1.0, 2.0, 1.0, 77.0]);
        for head in heads {
            let soft = head.index == 0;
            let mut target = device.buffer(n).unwrap();
            let inputs = CriticTarget {
                head,
                pass: &pass,
                signal: &signal,
                not_terminal: &not_terminal,
                entropy: soft.then_some((&log_prob, &log_temperature)),
                discount: 0.97,
                range: (!soft).then_some([-0.5, 0.0]),
            };
            device.critic_target(inputs, &mut target);
            let [mut loss, mut value] = [(); 2].map(|()| device.buffer(agents).unwrap());
            device.critic_loss(head, &target, &mut pass, &mut loss);
            if self.exact {
                draw.keep("target", &target, n);
                let gradient = std::mem::replace(pass.output_gradient(), device.buffer(0).unwrap());
                draw.keep("loss gradient", &gradient, agents * 4 * rows);
                *pass.output_gradient() = gradient;
            }
            device.climb(head, &weights, &mut pass, &mut value);
            let gradient = std::mem::replace(pass.output_gradient(), device.buffer(0).unwrap());
            if self.exact {
                draw.keep("climbing gradient", &gradient, agents * 4 * rows);
            } else {
                draw.keep("loss", &loss, agents);
                draw.keep("value", &value, agents);
            }
            *pass.output_gradient() = gradient;
        }
        let drawn = Drawn { action: device.buffer(n).unwrap(), log_prob };
        let [mut gradient, mut entropy] = [(); 2].map(|()| device.buffer(agents).unwrap());
        device.temperature_gradient(&log_temperature, &drawn, -3.0, &mut gradient, &mut entropy);
        if !self.exact {
            draw.keep("temperature's gradient", &gradient, agents);
            draw.keep("entropy", &entropy, agents);
        }
        draw.results
    }
}

struct Steps;

impl Scenario for Steps {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (owners, each) = (3, 301);
        let mut draw = Draw::new(device, "adam");
        let values = draw.numbers(owners * each);
        let mut p = Parameters::new(device, owners, &values).unwrap();
        let (rate, correction) = (draw.put(&[1e-3, 2e-3, 3e-3]), draw.put(&[1.5, 1.6, 1.7]));
        let active = draw.put(&[1.0, 0.0, 1.0]);
        let (shrink, factor) = (draw.put(&[0.99, 0.98, 1.0]), draw.put(&[1.0, 0.5, 1e-12]));
        let mut follower = draw.buffer(owners * each);
        for round in 0..3 {
            p.gradients = draw.scaled(owners * each, 0.1);
            let step = AdamStep {
                settings: AdamSettings::default(),
                rate: &rate,
                correction: &correction,
                active: &active,
                shrink: (round > 0).then_some(&shrink),
                factor: (round > 1).then_some(&factor),
            };
            device.adam(&mut p, &step, (round != 1).then_some((&mut follower, 0.01)));
        }
        draw.keep("weights", &p.values, owners * each);
        draw.keep("first moments", &p.moments[0], owners * each);
        draw.keep("second moments", &p.moments[1], owners * each);
        draw.keep("follower", &follower, owners * each);
        let other = draw.buffer(owners * each);
        device.add_gradients(&mut p.values, &other);
        device.fill(&mut p.values, 5, 300, 2.5);
        device.copy(&other, 3, &mut p.values, 700, 100);
        draw.keep("added, filled, copied", &p.values, owners * each);
        draw.results
    }
}

struct Clipping;

impl Scenario for Clipping {
    fn run<D: Device>(&self, device: &D) -> Results {
        let mut draw = Draw::new(device, "clip");
        let mut numbers = draw.numbers(3000);
        numbers[..1000].iter_mut().for_each(|x| *x *= 1e-4);
        let gradients = draw.put(&numbers);
        let mut factor = device.buffer(3).unwrap();
        device.clip(&gradients, 3, 5.0, &mut factor);
        draw.keep("factors", &factor, 3);
        draw.results
    }
}

struct Replays {
    history: bool,
}

impl Scenario for Replays {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (agents, size, s, a, m, shared, ring) = (3, 20, 5, 2, 7, 31, 13);
        let mut draw = Draw::new(device, "replay");
        let units = Units {
            agents,
            observation_centre: draw.buffer(agents * s),
            observation_scale: draw.put(&[0.5, 2.0, 3.0, 4.0, 0.1, 9.0, 0.2, 1.3, 0.4, 0.0, 0.3, 0.6, 70.0, 0.8, 0.1]),
            reward_centre: draw.buffer(agents),
            reward_scale: draw.put(&[0.7, 0.1, 3.0]),
            action_middle: draw.buffer(a),
            action_half: draw.put(&[0.3, 2.0]),
            observation_width: s,
            action_width: a,
        };
        let mut table = |rows: usize| Table::<D> {
            observation: draw.buffer(rows * s),
            memory: draw.buffer(rows * m),
            action: draw.buffer(rows * a),
            reward: draw.buffer(rows),
            score: draw.buffer(rows),
            not_terminal: draw.buffer(rows),
            capacity: rows,
        };
        let (stored, mut own) = (table(shared), table(agents * ring));
        let mut steps = Appended::new(device, agents, s, a).unwrap();
        device.write_rows(&mut steps.rows, 0, &[3, 4, u32::MAX, 13, 38, u32::MAX]);
        (steps.action, steps.reward) = (draw.buffer(agents * a), draw.buffer(agents));
        (steps.not_terminal, steps.next_observation) = (draw.buffer(agents), draw.buffer(agents * s));
        let (score, memory) = (draw.buffer(agents), draw.buffer(agents * m));
        device.append(&steps, Some(Scored { score: &score, memory: &memory }), &mut own);
        let tables = Tables {
            shared: &stored,
            own: &own,
            population: agents,
            units: &units,
            memory_width: m,
            history: self.history,
        };
        let state = s + if self.history { m } else { 0 };
        let rows: Vec<u32> = (0..agents * size)
            .map(|i| if i % 2 == 0 { (i * 7 % (shared - 1)) as u32 } else { (shared + i * 5 % ring) as u32 })
            .collect();
        let n = agents * size;
        let rows = draw.rows(&rows);
        let mut batch = Batch::new(device, agents, size, state, a).unwrap();
        device.gather(&tables, &rows, &mut batch);
        for (name, column, width) in [
            ("state", &batch.state, state),
            ("next state", &batch.next_state, state),
            ("action", &batch.action, a),
            ("reward", &batch.reward, 1),
            ("score", &batch.score, 1),
            ("not terminal", &batch.not_terminal, 1),
        ] {
            draw.keep(name, column, n * width);
        }
        let (observation, memory) = (draw.buffer(n * s), draw.buffer(n * m));
        let mut seen = device.buffer(n * state).unwrap();
        device.see(&units, &observation, self.history.then_some((&memory, m)), &mut seen);
        draw.keep("seen", &seen, n * state);
        let mut action = device.buffer(n * a).unwrap();
        device.to_env(&units, &batch.action, &mut action);
        draw.keep("actions in the environment's units", &action, n * a);
        draw.results
    }
}

struct Scoring;

impl Scenario for Scoring {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (replicas, members, each, h, s, a) = (2, 3, 5, 4, 3, 2);
        let rows = replicas * each;
        let mut draw = Draw::new(device, "scoring");
        let (observation, action) = (draw.buffer(rows * s), draw.buffer(rows * a));
        let (centre, scale) = (draw.buffer(replicas * (s + a)), draw.buffer(replicas * (s + a)));
        let mut input = device.buffer(rows * (s + a)).unwrap();
        let inputs = Normalise {
            observation: &observation,
            action: &action,
            observation_width: s,
            action_width: a,
            centre: &centre,
            scale: &scale,
            replicas,
            rows: each,
        };
        device.normalise(inputs, &mut input);
        draw.keep("normalised", &input, rows * (s + a));
        let net = Bank::dense(Mlp::new(1, &[], 1), replicas * members);
        let mut pass = Pass::new(device, &net, each).unwrap();
        let logits: Vec<f32> = draw.numbers(replicas * members * each).iter().map(|x| x * 60.0).collect();
        device.write(&mut pass.activations[0], 0, &logits);
        let mut log_prob = device.buffer(rows).unwrap();
        device.log_prob(&pass, members, &mut log_prob);
        draw.keep("log P", &log_prob, rows);
        let active = draw.put(&[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0]);
        let (mut sum, mut score) = (draw.scaled(rows, -3.0), draw.buffer(rows));
        device.floor(&log_prob, -2.0, &active, &mut sum, &mut score);
        draw.keep("sums", &sum, rows);
        draw.keep("scores", &score, rows);
        let hidden = draw.buffer(rows * members * h);
        let mut memory = device.buffer(rows * (members * h + 1)).unwrap();
        let all = MemoryRows { hidden: &hidden, sum: &sum, floor: -2.0, replicas, members, width: h, rows };
        device.memory(all, &mut memory);
        draw.keep("memory", &memory, rows * (members * h + 1));
        draw.results
    }
}

struct Losses;

impl Scenario for Losses {
    fn run<D: Device>(&self, device: &D) -> Results {
        let (groups, steps, rows) = (3, 29, 6);
        let n = groups * steps * rows;
        let mut draw = Draw::new(device, "loss");
        let net = Bank::dense(Mlp::new(1, &[], 1), groups);
        let mut pass = Pass::new(device, &net, steps * rows).unwrap();
        let logits: Vec<f32> = draw.numbers(n).iter().map(|x| 3.0 + x * 5.0).collect();
        device.write(&mut pass.activations[0], 0, &logits);
        let labels: Vec<f32> = draw.numbers(n).iter().map(|x| if x.abs() < 0.8 { 0.0 } else { x.signum() }).collect();
        let (labels, scale) = (draw.put(&labels), draw.put(&[0.02, 0.03, 0.01]));
        let mut loss = device.buffer(groups).unwrap();
        let prefixes = TrajectoryLoss { labels: &labels, scale: &scale, steps, rows };
        device.trajectory_loss(prefixes, &mut pass, &mut loss);
        draw.keep("loss", &loss, groups);
        let gradient = std::mem::replace(pass.output_gradient(), device.buffer(0).unwrap());
        draw.keep("gradient", &gradient, n);
        draw.results
    }
}

#[test]
fn whatever_works_by_element_has_the_cpus_bits() {
    compare(&Normals, Close::Same);
    compare(&Policy, Close::Same);
    compare(&Critics { exact: true }, Close::Same);
    compare(&Steps, Close::Same);
    compare(&Replays { history: true }, Close::Same);
    compare(&Replays { history: false }, Close::Same);
    compare(&Scoring, Close::Same);
}

#[test]
fn sums_over_batches_agree() {
    compare(&Critics { exact: false }, Close::Within(1e-6));
    compare(&Clipping, Close::Within(1e-6));
    compare(&Losses, Close::Within(1e-5));
}

#[test]
fn a_recorded_sequence_repeats_itself() {
    let device = cuda();
    let mut program = prudence_cuda::Sequence::default();
    let (mut sum, mut one) = (device.buffer(4).unwrap(), device.buffer(4).unwrap());
    device.fill(&mut one, 0, 4, 1.0);
    for round in 1..=4u8 {
        device.run(&mut program, || device.add_gradients(&mut sum, &one)).unwrap();
        let mut numbers = [0.0; 4];
        device.read(&sum, 0, &mut numbers).unwrap();
        assert_eq!(numbers, [f32::from(round); 4]);
    }
}

#[test]
fn a_network_computes_the_same_in_any_company() {
    let device = cuda();
    let run = |groups: usize| {
        let mut draw = Draw::new(&device, "company");
        let shape = Mlp::new(20, &[130, 129], 1);
        let one = draw.numbers(shape.parameters());
        let x = draw.numbers(200 * 20);
        let net = Bank::dense(shape, groups);
        let weights = draw.put(&one.repeat(groups));
        let x = draw.put(&x.repeat(groups));
        let input = Input { first: Columns::new(&x, 200, 20, 1), second: None };
        let mut pass = Pass::new(&device, &net, 200).unwrap();
        device.forward(&net, &weights, input, &mut pass);
        device.write(pass.output_gradient(), 0, &vec![1.0; groups * 200]);
        let mut gradients = device.buffer(groups * one.len()).unwrap();
        device.backward(&net, &weights, input, &mut pass, &mut gradients);
        let mut numbers = vec![0.0; one.len()];
        device.read(&gradients, (groups - 1) * one.len(), &mut numbers).unwrap();
        numbers
    };
    assert!(run(1) == run(5));
}
