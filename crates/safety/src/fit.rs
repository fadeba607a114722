//! Fits a model to labelled (sub)trajectories with binary cross-entropy. The labels do not say which steps to blame;
//! the model learns that.
//!
//! The log-probability of a prefix is a prefix sum of the steps' log-probabilities, so one pass over a segment scores
//! all its prefixes, and each labelled one adds a term to the loss. Segments that start later get their own pass from
//! h = 0. The split is by episode: no segment of a held-out episode is trained on.

use std::sync::Arc;

use prudence_core::random::stream;
use prudence_data::{Episode, Segment};
use prudence_nn::work::{AdamStep, Parameters, TrajectoryLoss};
use prudence_nn::{AdamSettings, Device, DeviceError};
use rand::RngExt as _;

use crate::model::Networks;
use crate::sequences::{Sequences, Span, Weights};
use crate::{Error, FitSettings, ModelShape, SafetyModel, Scorer};

/// An ensemble in training. Every member has its own batches, its own optimiser and its own gradient clipping.
pub struct Fitter<D: Device> {
    device: D,
    settings: FitSettings,
    shape: ModelShape,
    networks: Networks,
    members: usize,
    /// The parameters of each member: encoder, GRU, decoder.
    pub parameters: Parameters<D>,
    model: SafetyModel,
    /// `[M, s + a]`: the means of `(s, a)`, which normalise the inputs.
    pub centre: D::Buf,
    /// `[M, s + a]`: the inverse standard deviations.
    pub scale: D::Buf,
    parts: Vec<Part<D>>,
    steps: u64,
    /// `[M]` each
    rate: D::Buf,
    correction: D::Buf,
    shrink: D::Buf,
    factor: D::Buf,
    active: D::Buf,
}

/// A part of each member's batch.
struct Part<D: Device> {
    sequences: Sequences<D>,
    /// `[M, parameters]`
    gradients: D::Buf,
    /// `[M, T, N]`
    labels: D::Buf,
    host_labels: Vec<f32>,
    /// `[M]` each
    scale: D::Buf,
    loss: D::Buf,
    outcome: Result<(), DeviceError>,
}

/// The inputs that all parts of a step share.
struct Step<'a, D: Device> {
    device: &'a D,
    shape: &'a ModelShape,
    networks: &'a Networks,
    weights: Weights<'a, D>,
    episodes: &'a [Episode],
    prefix_every: usize,
    /// For each member, one over the number of labelled prefixes in its batch.
    scale: &'a [f64],
    /// The number of segments per member in a part.
    rows: usize,
}

impl<D: Device> Part<D> {
    /// Computes the loss of these segments, one list per member, and its gradient.
    fn run(&mut self, step: &Step<'_, D>, segments: &[&[&Segment]]) -> Result<(), DeviceError> {
        let (d, rows) = (step.device, step.rows);
        let longest = segments.iter().flat_map(|s| s.iter()).map(|s| s.end - s.start).max();
        let Some(steps) = longest else {
            d.fill(&mut self.gradients, 0, segments.len() * step.shape.parameters(), 0.0);
            d.fill(&mut self.loss, 0, segments.len(), 0.0);
            return Ok(());
        };
        let span = |s: &&Segment| Span { episode: &step.episodes[s.episode], start: s.start, end: s.end };
        let spans: Vec<Vec<Span<'_>>> = segments.iter().map(|member| member.iter().map(span).collect()).collect();
        let spans: Vec<&[Span<'_>]> = spans.iter().map(Vec::as_slice).collect();
        self.sequences.set_steps(d, step.shape, step.networks, steps)?;
        self.sequences.forward(d, step.networks, &step.weights, &spans);
        self.label(step, segments, steps)?;
        let loss = TrajectoryLoss { labels: &self.labels, scale: &self.scale, steps, rows };
        d.trajectory_loss(loss, &mut self.sequences.decoder, &mut self.loss);
        self.sequences.backward(d, step.networks, &step.weights, &mut self.gradients);
        Ok(())
    }

    /// Writes the labels of all prefixes: 1 safe, -1 unsafe, 0 none.
    fn label(&mut self, step: &Step<'_, D>, segments: &[&[&Segment]], steps: usize) -> Result<(), DeviceError> {
        let (d, all) = (step.device, steps * step.rows);
        if self.host_labels.len() < segments.len() * all {
            self.labels = d.buffer(segments.len() * all)?;
        }
        self.host_labels.clear();
        self.host_labels.resize(segments.len() * all, 0.0);
        for (member, segments) in segments.iter().enumerate() {
            for (n, segment) in segments.iter().enumerate() {
                for length in 1..=segment.end - segment.start {
                    let label = prefix_label(segment, length, step.prefix_every);
                    let number = label.map_or(0.0, |safe| if safe { 1.0 } else { -1.0 });
                    self.host_labels[member * all + (length - 1) * step.rows + n] = number;
                }
            }
        }
        d.write(&mut self.labels, 0, &self.host_labels);
        d.steer(&mut self.scale, 0, step.scale);
        Ok(())
    }
}

/// The label of a segment's first `length` steps, if there is one and it enters the loss.
///
/// The prefix that ends with the breaking step does not enter the loss, unless it is the whole segment. The rule is
/// violated by the state after that step, which the model reads only in the next step. If the model had to decide
/// earlier, it would assign doubt to every step that comes close, and a sum of log-probabilities cannot increase again.
fn prefix_label(segment: &Segment, length: usize, prefix_every: usize) -> Option<bool> {
    let whole = length == segment.end - segment.start;
    let breaking = segment.at == Some(segment.start + length - 1);
    let wanted = whole || (length.is_multiple_of(prefix_every) && !breaking);
    wanted.then(|| segment.prefix_label(length)).flatten()
}

fn labelled_prefixes(segment: &Segment, prefix_every: usize) -> usize {
    (1..=segment.end - segment.start).filter(|n| prefix_label(segment, *n, prefix_every).is_some()).count()
}

impl<D: Device> Fitter<D> {
    /// Starts from the parameters of `model`.
    pub fn new(device: &D, model: SafetyModel, settings: &FitSettings) -> Result<Self, Error> {
        let (shape, members) = (model.shape.clone(), model.members);
        let networks = shape.networks(members);
        let rows = settings.batch.div_ceil(D::PARTS);
        let put = |numbers: &[f32]| -> Result<D::Buf, Error> {
            // Members read different batches, so each needs its own copy of these numbers.
            let mut buffer = device.buffer(members * numbers.len())?;
            (0..members).for_each(|m| device.write(&mut buffer, m * numbers.len(), numbers));
            Ok(buffer)
        };
        let part = || -> Result<Part<D>, Error> {
            Ok(Part {
                sequences: Sequences::new(device, &shape, &networks, 1, rows, 1)?,
                gradients: device.buffer(model.parameters.len())?,
                labels: device.buffer(0)?,
                host_labels: Vec::new(),
                scale: device.buffer(members)?,
                loss: device.buffer(members)?,
                outcome: Ok(()),
            })
        };
        let mut active = device.buffer(members)?;
        device.fill(&mut active, 0, members, 1.0);
        Ok(Self {
            parameters: Parameters::new(device, members, &model.parameters)?,
            centre: put(&model.centre)?,
            scale: put(&model.scale)?,
            parts: (0..D::PARTS).map(|_| part()).collect::<Result<_, _>>()?,
            steps: 0,
            rate: device.buffer(members)?,
            correction: device.buffer(members)?,
            shrink: device.buffer(members)?,
            factor: device.buffer(members)?,
            active,
            device: device.clone(),
            settings: settings.clone(),
            shape,
            networks,
            members,
            model,
        })
    }

    /// Computes the loss of each member's segments, and its gradient in [`Fitter::parameters`].
    pub fn gradients(&mut self, episodes: &[Episode], batches: &[Vec<&Segment>]) -> Result<(), Error> {
        let (every, rows) = (self.settings.prefix_every, self.settings.batch.div_ceil(D::PARTS));
        assert!(batches.iter().all(|batch| batch.len() <= self.settings.batch), "more segments than the batch size");
        let terms = |batch: &Vec<&Segment>| batch.iter().map(|s| labelled_prefixes(s, every)).sum::<usize>();
        let scale: Vec<f64> = batches.iter().map(|batch| 1.0 / terms(batch).max(1) as f64).collect();
        let step = Step {
            device: &self.device,
            shape: &self.shape,
            networks: &self.networks,
            weights: Weights { parameters: &self.parameters.values, centre: &self.centre, scale: &self.scale },
            episodes,
            prefix_every: every,
            scale: &scale,
            rows,
        };
        let part_of = |i: usize| -> Vec<&[&Segment]> {
            let of = |n: usize| n.min(i * rows)..n.min((i + 1) * rows);
            batches.iter().map(|batch| &batch[of(batch.len())]).collect()
        };
        let mut jobs: Vec<_> = self.parts.iter_mut().enumerate().map(|(i, part)| (part, part_of(i))).collect();
        self.device.each_part(&mut jobs, |(part, segments)| part.outcome = part.run(&step, segments));
        let [first, others @ ..] = &mut self.parts[..] else { return Ok(()) };
        for part in others {
            std::mem::replace(&mut part.outcome, Ok(()))?;
            self.device.add_gradients(&mut first.gradients, &part.gradients);
            self.device.add_gradients(&mut first.loss, &part.loss);
        }
        std::mem::replace(&mut first.outcome, Ok(()))?;
        std::mem::swap(&mut first.gradients, &mut self.parameters.gradients);
        Ok(())
    }

    /// `[M]`: the members' losses at the last [`Fitter::gradients`], on the device.
    pub fn loss(&self) -> &D::Buf {
        &self.parts[0].loss
    }

    /// The members' losses at the last [`Fitter::gradients`].
    pub fn losses(&self) -> Result<Vec<f32>, Error> {
        let mut losses = vec![0.0; self.members];
        self.device.read(self.loss(), 0, &mut losses)?;
        Ok(losses)
    }

    /// Takes one step of AdamW for each member, on its own segments.
    pub fn step(&mut self, episodes: &[Episode], batches: &[Vec<&Segment>], rate: f64) -> Result<(), Error> {
        self.gradients(episodes, batches)?;
        self.steps += 1;
        let (d, adam) = (&self.device, AdamSettings::default());
        let (step_size, correction) = adam.correction(rate, self.steps);
        for (buffer, number) in [
            (&mut self.rate, step_size),
            (&mut self.correction, correction),
            (&mut self.shrink, 1.0 - rate * self.settings.weight_decay),
        ] {
            d.steer(buffer, 0, &vec![number; self.members]);
        }
        d.clip(&self.parameters.gradients, self.members, self.settings.clip, &mut self.factor);
        let step = AdamStep {
            settings: adam,
            rate: &self.rate,
            correction: &self.correction,
            active: &self.active,
            shrink: Some(&self.shrink),
            factor: Some(&self.factor),
        };
        d.adam(&mut self.parameters, &step, None);
        Ok(())
    }

    /// The model with the current parameters.
    pub fn model(&self) -> Result<SafetyModel, Error> {
        let mut model = self.model.clone();
        self.device.read(&self.parameters.values, 0, &mut model.parameters)?;
        Ok(model)
    }

    /// A scorer with the current parameters, in the device's precision.
    pub fn scorer(&self, floor: f64) -> Result<Scorer<D>, Error> {
        let (d, shape) = (&self.device, &self.shape);
        let mut scorer = Scorer::new(d, &[Arc::new(self.model()?)], floor)?;
        d.copy(&self.parameters.values, 0, &mut scorer.parameters, 0, self.members * shape.parameters());
        d.copy(&self.centre, 0, &mut scorer.centre, 0, shape.inputs());
        d.copy(&self.scale, 0, &mut scorer.scale, 0, shape.inputs());
        Ok(scorer)
    }
}

/// Means and inverse standard deviations of `(s, a)` over the steps of these episodes. Constant inputs are only
/// centred.
fn moments(episodes: &[&Episode], observation: usize, action: usize) -> (Vec<f32>, Vec<f32>) {
    let mut sums = vec![(0.0f64, 0.0f64); observation + action];
    let mut count = f64::MIN_POSITIVE; // so that the means are 0 without episodes
    for episode in episodes {
        let rows = episode.observations.chunks_exact(observation).zip(episode.actions.chunks_exact(action));
        for (s, a) in rows {
            count += 1.0;
            for (sum, x) in sums.iter_mut().zip(s.iter().chain(a)) {
                sum.0 += f64::from(*x);
                sum.1 += f64::from(*x).powi(2);
            }
        }
    }
    sums.into_iter()
        .map(|(sum, squares)| {
            let mean = sum / count;
            let deviation = (squares / count - mean * mean).max(0.0).sqrt();
            let inverse = if deviation > 1e-6 { 1.0 / deviation } else { 1.0 };
            (mean as f32, inverse as f32)
        })
        .unzip()
}

/// Creates an untrained model: the inputs are normalised by `episodes`, the weights are initialised like PyTorch's, and
/// the output bias makes whole episodes of `horizon` steps safe at first (the sum of log P is about -0.1).
pub fn initial_model(
    episodes: &[&Episode],
    observation: usize,
    action: usize,
    horizon: usize,
    settings: &FitSettings,
    seed: u64,
) -> SafetyModel {
    let shape = ModelShape::new(observation, action, &settings.encoder, settings.hidden, &settings.decoder);
    let mut parameters = vec![0.0; settings.ensemble * shape.parameters()];
    for (m, parameters) in parameters.chunks_exact_mut(shape.parameters()).enumerate() {
        let mut rng = stream(seed, "safety-init", m as u64);
        let mut uniform = |bound: f64| rng.random_range(-bound..bound);
        let [encoder, gru, decoder] = shape.split_mut(parameters);
        if let Some(shape) = &shape.encoder {
            shape.init(encoder, &mut uniform);
        }
        shape.gru.init(gru, &mut uniform);
        shape.decoder.init(decoder, &mut uniform);
        if let Some(bias) = decoder.last_mut() {
            *bias = (10.0 * (horizon as f32 + 1.0)).ln();
        }
    }
    let (centre, scale) = moments(episodes, observation, action);
    SafetyModel { shape, members: settings.ensemble, centre, scale, parameters }
}

/// The number of steps between two checks of the loss.
const LOOK_EVERY: usize = 20;

/// Fits a model to the training segments. `progress` is called regularly with the step and the members' mean loss.
pub fn fit<D: Device>(
    device: &D,
    episodes: &[Episode],
    training: &[Segment],
    horizon: usize,
    settings: &FitSettings,
    seed: u64,
    mut progress: impl FnMut(usize, f32),
) -> Result<SafetyModel, Error> {
    let Some(first) = training.first().map(|s| &episodes[s.episode]) else {
        return Err(Error::Data("no labelled episode to train on".into()));
    };
    for (verdict, name) in [(true, "safe"), (false, "unsafe")] {
        if !training.iter().any(|s| s.safe == verdict) {
            return Err(Error::Data(format!("no {name} episode to train on: labels of both kinds are needed")));
        }
    }
    let (observation, action) = (first.observations.len() / (first.len() + 1), first.actions.len() / first.len());
    let mut used: Vec<usize> = training.iter().map(|s| s.episode).collect();
    used.sort_unstable();
    used.dedup();
    let used: Vec<&Episode> = used.into_iter().map(|i| &episodes[i]).collect();
    let model = initial_model(&used, observation, action, horizon, settings, seed);
    let mut fitter = Fitter::new(device, model, settings)?;
    let mut draws: Vec<_> = (0..settings.ensemble as u64).map(|m| stream(seed, "safety-batches", m)).collect();
    let mut batches = vec![Vec::with_capacity(settings.batch); settings.ensemble];
    for step in 0..settings.steps {
        for (batch, rng) in batches.iter_mut().zip(&mut draws) {
            batch.clear();
            batch.extend((0..settings.batch).map(|_| &training[rng.random_range(0..training.len())]));
        }
        let along = step as f64 / settings.steps as f64;
        let rate = settings.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * along).cos());
        fitter.step(episodes, &batches, rate)?;
        let done = step + 1;
        if done.is_multiple_of(LOOK_EVERY) || done == settings.steps {
            let losses = fitter.losses()?;
            if let Some(loss) = losses.iter().find(|loss| !loss.is_finite()) {
                return Err(Error::Diverged { step, loss: *loss });
            }
            progress(done, losses.iter().sum::<f32>() / losses.len() as f32);
        }
    }
    let model = fitter.model()?;
    if model.parameters.iter().all(|w| w.is_finite()) {
        Ok(model)
    } else {
        Err(Error::Diverged { step: settings.steps, loss: f32::NAN })
    }
}
