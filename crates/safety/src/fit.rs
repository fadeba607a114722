//! Fits a model to labelled (sub)trajectories with binary cross-entropy. The labels do not say which steps to blame;
//! the model learns that.
//!
//! The log-probability of a prefix is a prefix sum of the steps' log-probabilities, so one pass over a segment scores
//! all its prefixes, and each labelled one adds a term to the loss. Segments that start later get their own pass from
//! h = 0. The split is by episode: no segment of a held-out episode is trained on.

use std::sync::Arc;

use prudence_core::random::{StreamId, blocks, stream};
use prudence_data::{Episodes, Moments, Segment, Steps};
use prudence_nn::work::{AdamStep, Parameters, TrajectoryLoss};
use prudence_nn::{AdamSettings, Device, DeviceError};
use rand::RngExt as _;
use rayon::iter::{IndexedParallelIterator as _, IntoParallelRefIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;

use crate::model::Networks;
use crate::sequences::{OnDevice, Sequences, Source, Span, Weights};
use crate::{Error, FitSettings, ModelShape, SafetyModel, Scorer};

/// Models in training: the members of one or more replicas' ensembles. Every member has its own batches, its own
/// optimiser and its own gradient clipping.
pub struct Fitter<D: Device> {
    device: D,
    settings: FitSettings,
    shape: ModelShape,
    networks: Networks,
    /// G: the members of all replicas.
    members: usize,
    /// The parameters of each member: encoder, GRU, decoder.
    pub parameters: Parameters<D>,
    /// The models as they were at the start, one per replica.
    models: Vec<SafetyModel>,
    /// `[G, s + a]`: the means of `(s, a)`, which normalise the inputs.
    pub centre: D::Buf,
    /// `[G, s + a]`: the inverse standard deviations.
    pub scale: D::Buf,
    parts: Vec<Part<D>>,
    steps: u64,
    /// `[G]` each
    rate: D::Buf,
    correction: D::Buf,
    shrink: D::Buf,
    factor: D::Buf,
    active: D::Buf,
}

/// A part of each member's batch.
struct Part<D: Device> {
    sequences: Sequences<D>,
    /// `[G, parameters]`
    gradients: D::Buf,
    /// `[G, T, N]`
    labels: D::Buf,
    label_capacity: usize,
    host_labels: Vec<f32>,
    /// `[G]` each
    scale: D::Buf,
    loss: D::Buf,
    outcome: Result<(), Error>,
}

/// The inputs that all parts of a step share.
struct Step<'a, D: Device, E: ?Sized> {
    device: &'a D,
    shape: &'a ModelShape,
    networks: &'a Networks,
    weights: Weights<'a, D>,
    source: &'a Source<'a, D, E>,
    prefix_every: usize,
    /// For each member, one over the number of labelled prefixes in its batch.
    scale: &'a [f64],
    /// The number of segments per member in a part.
    rows: usize,
}

impl<D: Device> Part<D> {
    /// Computes the loss of these segments, one list per member, and its gradient.
    fn run<E: Episodes + ?Sized>(&mut self, step: &Step<'_, D, E>, segments: &[&[&Segment]]) -> Result<(), Error> {
        let (d, rows) = (step.device, step.rows);
        let longest = segments.iter().flat_map(|s| s.iter()).map(|s| s.end - s.start).max();
        let Some(steps) = longest else {
            d.fill(&mut self.gradients, 0, segments.len() * step.shape.parameters(), 0.0);
            d.fill(&mut self.loss, 0, segments.len(), 0.0);
            return Ok(());
        };
        let span = |s: &&Segment| Span { episode: s.episode, steps: s.start..s.end };
        let spans: Vec<Vec<Span>> = segments.iter().map(|member| member.iter().map(span).collect()).collect();
        self.sequences.set_steps(d, step.shape, step.networks, steps)?;
        self.sequences.forward(d, step.networks, &step.weights, step.source, &spans)?;
        self.label(step, segments, steps)?;
        let loss = TrajectoryLoss { labels: &self.labels, scale: &self.scale, steps, rows };
        d.trajectory_loss(loss, &mut self.sequences.decoder, &mut self.loss);
        self.sequences.backward(d, step.networks, &step.weights, &mut self.gradients);
        Ok(())
    }

    /// Writes the labels of all prefixes: 1 safe, -1 unsafe, 0 none.
    fn label<E: ?Sized>(
        &mut self,
        step: &Step<'_, D, E>,
        segments: &[&[&Segment]],
        steps: usize,
    ) -> Result<(), DeviceError> {
        let (d, all) = (step.device, steps * step.rows);
        if self.label_capacity < segments.len() * all {
            self.label_capacity = segments.len() * all;
            self.labels = d.buffer(self.label_capacity)?;
        }
        self.host_labels.clear();
        self.host_labels.resize(segments.len() * all, 0.0);
        let (every, rows) = (step.prefix_every, step.rows);
        self.host_labels.par_chunks_exact_mut(all).zip(segments).for_each(|(labels, segments)| {
            for (n, segment) in segments.iter().enumerate() {
                for length in 1..=segment.end - segment.start {
                    let label = prefix_label(segment, length, every);
                    labels[(length - 1) * rows + n] = label.map_or(0.0, |safe| if safe { 1.0 } else { -1.0 });
                }
            }
        });
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

/// The number of a segment's prefixes whose labels enter the loss.
pub fn labelled_prefixes(segment: &Segment, prefix_every: usize) -> usize {
    (1..=segment.end - segment.start).filter(|n| prefix_label(segment, *n, prefix_every).is_some()).count()
}

impl<D: Device> Fitter<D> {
    /// Starts from the parameters of models of the same shape, one per replica.
    pub fn new(device: &D, models: Vec<SafetyModel>, settings: &FitSettings) -> Result<Self, Error> {
        let Some(first) = models.first() else { return Err(Error::Data("no safety model to fit".to_owned())) };
        let (shape, members) = (first.shape.clone(), models.iter().map(|model| model.members).sum());
        let networks = shape.networks(members);
        let rows = settings.batch.div_ceil(D::PARTS);
        let put = |part: fn(&SafetyModel) -> &Vec<f32>| -> Result<D::Buf, Error> {
            // Members read different batches, so each needs its own copy of these numbers.
            let all: Vec<f32> = models.iter().flat_map(|model| part(model).repeat(model.members)).collect();
            let mut buffer = device.buffer(all.len())?;
            device.write(&mut buffer, 0, &all);
            Ok(buffer)
        };
        let parameters: Vec<f32> = models.iter().flat_map(|model| &model.parameters).copied().collect();
        let part = || -> Result<Part<D>, Error> {
            Ok(Part {
                sequences: Sequences::new(device, &shape, &networks, 1, rows, 1)?,
                gradients: device.buffer(parameters.len())?,
                labels: device.buffer(0)?,
                label_capacity: 0,
                host_labels: Vec::new(),
                scale: device.buffer(members)?,
                loss: device.buffer(members)?,
                outcome: Ok(()),
            })
        };
        let mut active = device.buffer(members)?;
        device.fill(&mut active, 0, members, 1.0);
        Ok(Self {
            parameters: Parameters::new(device, members, &parameters)?,
            centre: put(|model| &model.centre)?,
            scale: put(|model| &model.scale)?,
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
            models,
        })
    }

    /// Computes the loss of each member's segments, and its gradient in [`Fitter::parameters`]. `episodes` has one entry
    /// per replica.
    pub fn gradients<E: Episodes + ?Sized>(&mut self, episodes: &[&E], batches: &[Vec<&Segment>]) -> Result<(), Error> {
        self.gradients_from(&Source::Host(episodes), batches)
    }

    fn gradients_from<E: Episodes + ?Sized>(
        &mut self,
        source: &Source<'_, D, E>,
        batches: &[Vec<&Segment>],
    ) -> Result<(), Error> {
        let (every, rows) = (self.settings.prefix_every, self.settings.batch.div_ceil(D::PARTS));
        assert!(batches.iter().all(|batch| batch.len() <= self.settings.batch), "more segments than the batch size");
        let terms = |batch: &Vec<&Segment>| batch.iter().map(|s| labelled_prefixes(s, every)).sum::<usize>();
        let scale: Vec<f64> = batches.par_iter().map(|batch| 1.0 / terms(batch).max(1) as f64).collect();
        let step = Step {
            device: &self.device,
            shape: &self.shape,
            networks: &self.networks,
            weights: Weights { parameters: &self.parameters.values, centre: &self.centre, scale: &self.scale },
            source,
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
    pub fn step<E: Episodes + ?Sized>(
        &mut self,
        episodes: &[&E],
        batches: &[Vec<&Segment>],
        rate: f64,
    ) -> Result<(), Error> {
        self.step_from(&Source::Host(episodes), batches, rate)
    }

    fn step_from<E: Episodes + ?Sized>(
        &mut self,
        source: &Source<'_, D, E>,
        batches: &[Vec<&Segment>],
        rate: f64,
    ) -> Result<(), Error> {
        self.gradients_from(source, batches)?;
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

    /// A replica's model with the current parameters.
    pub fn model(&self, replica: usize) -> Result<SafetyModel, Error> {
        let mut model = self.models[replica].clone();
        self.device.read(&self.parameters.values, replica * model.parameters.len(), &mut model.parameters)?;
        Ok(model)
    }

    /// A scorer with the current parameters, in the device's precision.
    pub fn scorer(&self, floor: f64) -> Result<Scorer<D>, Error> {
        let (d, shape) = (&self.device, &self.shape);
        let models = (0..self.models.len()).map(|replica| Ok(Arc::new(self.model(replica)?)));
        let mut scorer = Scorer::new(d, &models.collect::<Result<Vec<_>, Error>>()?, floor)?;
        d.copy(&self.parameters.values, 0, &mut scorer.parameters, 0, self.members * shape.parameters());
        let (inputs, each) = (shape.inputs(), self.members / self.models.len());
        for replica in 0..self.models.len() {
            d.copy(&self.centre, replica * each * inputs, &mut scorer.centre, replica * inputs, inputs);
            d.copy(&self.scale, replica * each * inputs, &mut scorer.scale, replica * inputs, inputs);
        }
        Ok(scorer)
    }
}

/// Means and inverse standard deviations of `(s, a)` over the steps of some episodes. Constant inputs are only centred.
fn moments<E: Episodes + ?Sized>(episodes: &E, used: &[usize], shape: &ModelShape) -> Result<[Vec<f32>; 2], Error> {
    let mut moments = vec![Moments::default(); shape.inputs()];
    let mut read = Steps::default();
    for episode in used {
        episodes.read_steps(*episode, 0..episodes.steps(*episode), &mut read)?;
        let rows = read.observations.chunks_exact(shape.observation).zip(read.actions.chunks_exact(shape.action));
        for (s, a) in rows {
            moments.iter_mut().zip(s.iter().chain(a)).for_each(|(moments, x)| moments.add(f64::from(*x)));
        }
    }
    let one = |moments: Moments| (moments.mean() as f32, moments.deviation().unwrap_or(1.0).recip() as f32);
    let (centre, scale) = moments.into_iter().map(one).unzip();
    Ok([centre, scale])
}

/// Creates an untrained model: the inputs are normalised by the episodes `used`, the weights are initialised like
/// PyTorch's, and the output bias makes whole episodes of `horizon` steps safe at first (the sum of log P is about -0.1).
pub fn initial_model<E: Episodes + ?Sized>(
    episodes: &E,
    used: &[usize],
    [observation, action]: [usize; 2],
    horizon: usize,
    settings: &FitSettings,
    seed: u64,
) -> Result<SafetyModel, Error> {
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
    let [centre, scale] = moments(episodes, used, &shape)?;
    Ok(SafetyModel { shape, members: settings.ensemble, centre, scale, parameters })
}

/// The number of steps between two checks of the loss.
const CHECK_EVERY: usize = 20;

/// What the models of a replica are fitted to.
pub struct FitData<'a, E: ?Sized> {
    /// The episodes.
    pub episodes: &'a E,
    /// The segments of these episodes to train on.
    pub training: &'a [Segment],
    /// The seed of the initial parameters and of the batches.
    pub seed: u64,
}

/// What a replica's models are fitted to again.
pub struct RefitData<'a, E: ?Sized> {
    /// The models to continue from.
    pub model: &'a SafetyModel,
    /// The episodes.
    pub episodes: &'a E,
    /// Lists of segments of these episodes, each of which fills an equal share of every batch.
    pub pools: Vec<&'a [Segment]>,
    /// The seed of the batches.
    pub seed: u64,
}

/// The segments that a replica's batches are drawn from.
struct Draws<'a, E: ?Sized> {
    episodes: &'a E,
    /// See [`RefitData::pools`].
    pools: Vec<&'a [Segment]>,
    seed: u64,
}

impl<'a, E: ?Sized> Draws<'a, E> {
    /// Batch number `step` of a member: each pool fills its share with segments drawn uniformly.
    fn batch(&self, step: usize, [member, members]: [usize; 2], drawn: &mut [u32]) -> Vec<&'a Segment> {
        let (size, pools) = (drawn.len(), self.pools.len());
        let mut batch = Vec::with_capacity(size);
        for (pool, segments) in self.pools.iter().enumerate() {
            let drawn = &mut drawn[size * pool / pools..size * (pool + 1) / pools];
            let stream = StreamId::new(self.seed, "safety-batches", (pool * members + member) as u64);
            stream.below(step as u64 * blocks(size), segments.len() as u32, drawn);
            batch.extend(drawn.iter().map(|index| &segments[*index as usize]));
        }
        batch
    }
}

/// A fit in progress, of one or more replicas. Which segments a step uses depends only on the replica's seed and on the
/// number of the step, so a fit that continues from a [`FitState`] gives the same bits as an uninterrupted one.
pub struct Fit<'a, D: Device, E: ?Sized> {
    fitter: Fitter<D>,
    draws: Vec<Draws<'a, E>>,
    /// Where the device holds the episodes.
    on_device: Option<OnDevice<D>>,
    step: usize,
    /// `[G]`: the members' losses when they were last checked.
    losses: Vec<f32>,
    /// For each replica, the step at which its loss was found not to be finite, and the loss.
    diverged: Vec<Option<(usize, f32)>>,
    /// Indices of segments, `[batch]`
    drawn: Vec<u32>,
}

/// The part of a replica's fit that changes from step to step.
#[derive(Clone, Debug, PartialEq)]
pub struct FitState {
    /// The number of completed steps.
    pub step: usize,
    /// `[M, parameters]`
    pub parameters: Vec<f32>,
    /// Adam's first and second moments, laid out like the parameters.
    pub moments: [Vec<f32>; 2],
}

impl<E: Episodes + ?Sized> FitData<'_, E> {
    /// Refuses data without labels of both kinds.
    pub fn check(&self) -> Result<(), Error> {
        if self.training.is_empty() {
            return Err(Error::Data("no labelled episode to train on".into()));
        }
        for (verdict, name) in [(true, "safe"), (false, "unsafe")] {
            if !self.training.iter().any(|s| s.safe == verdict) {
                return Err(Error::Data(format!("no {name} episode to train on: labels of both kinds are needed")));
            }
        }
        Ok(())
    }

    /// The model at the start of the fit.
    fn initial(&self, horizon: usize, settings: &FitSettings) -> Result<SafetyModel, Error> {
        self.check()?;
        let first = self.episodes.episode(self.training[0].episode)?;
        let widths = [first.observation_width, first.action_width];
        let mut used: Vec<usize> = self.training.iter().map(|s| s.episode).collect();
        used.sort_unstable();
        used.dedup();
        initial_model(self.episodes, &used, widths, horizon, settings, self.seed)
    }
}

impl<'a, D: Device, E: Episodes + ?Sized> Fit<'a, D, E> {
    /// Starts a fit to the training segments of each replica.
    pub fn new(device: &D, data: Vec<FitData<'a, E>>, horizon: usize, settings: &FitSettings) -> Result<Self, Error> {
        let models = data.iter().map(|data| data.initial(horizon, settings)).collect::<Result<Vec<_>, _>>()?;
        let draws = data.into_iter().map(|FitData { episodes, training, seed }| Draws {
            episodes,
            pools: vec![training],
            seed,
        });
        Self::of(device, models, draws.collect(), settings)
    }

    /// Starts a fit of each replica from models that were fitted before, with fresh moments.
    pub fn again(device: &D, data: Vec<RefitData<'a, E>>, settings: &FitSettings) -> Result<Self, Error> {
        let models = data.iter().map(|data| data.model.clone()).collect();
        let draws = data.into_iter().map(|RefitData { episodes, mut pools, seed, .. }| {
            pools.retain(|pool| !pool.is_empty());
            Draws { episodes, pools, seed }
        });
        let draws: Vec<_> = draws.collect();
        if draws.iter().any(|draws| draws.pools.is_empty()) {
            return Err(Error::Data("no labelled episode to train on".into()));
        }
        Self::of(device, models, draws, settings)
    }

    fn of(
        device: &D,
        models: Vec<SafetyModel>,
        draws: Vec<Draws<'a, E>>,
        settings: &FitSettings,
    ) -> Result<Self, Error> {
        let fitter = Fitter::new(device, models, settings)?;
        let episodes: Vec<&E> = draws.iter().map(|draws| draws.episodes).collect();
        let on_device = D::HOLDS_EPISODES.then(|| OnDevice::new(device, &fitter.shape, &episodes)).transpose()?;
        Ok(Self {
            on_device,
            step: 0,
            losses: vec![f32::NAN; fitter.members],
            diverged: vec![None; draws.len()],
            drawn: vec![0; settings.batch],
            fitter,
            draws,
        })
    }

    /// The number of completed steps.
    pub fn steps(&self) -> usize {
        self.step
    }

    /// Whether all steps are completed.
    pub fn done(&self) -> bool {
        self.step == self.fitter.settings.steps
    }

    /// The members' mean loss when it was last checked.
    pub fn loss(&self) -> f32 {
        self.losses.iter().sum::<f32>() / self.losses.len() as f32
    }

    /// One step of gradient descent. It is an error if the fits of all replicas have diverged.
    pub fn step(&mut self) -> Result<(), Error> {
        let FitSettings { ensemble, steps, learning_rate, .. } = self.fitter.settings;
        let mut batches = Vec::with_capacity(self.fitter.members);
        for draws in &self.draws {
            for member in 0..ensemble {
                batches.push(draws.batch(self.step, [member, ensemble], &mut self.drawn));
            }
        }
        let progress = self.step as f64 / steps as f64;
        let rate = learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        let episodes: Vec<&E> = self.draws.iter().map(|draws| draws.episodes).collect();
        let source = match &self.on_device {
            Some(episodes) => Source::Device(episodes),
            None => Source::Host(&episodes),
        };
        self.fitter.step_from(&source, &batches, rate)?;
        self.step += 1;
        if self.step.is_multiple_of(CHECK_EVERY) || self.done() {
            self.check()?;
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Error> {
        self.losses = self.fitter.losses()?;
        let ensemble = self.fitter.settings.ensemble;
        for (losses, diverged) in self.losses.chunks_exact(ensemble).zip(&mut self.diverged) {
            let bad = losses.iter().find(|loss| !loss.is_finite());
            *diverged = diverged.or(bad.map(|loss| (self.step, *loss)));
        }
        if self.diverged.iter().all(Option::is_some) {
            self.diverged(0)?;
        }
        Ok(())
    }

    fn diverged(&self, replica: usize) -> Result<(), Error> {
        self.diverged[replica].map_or(Ok(()), |(step, loss)| Err(Error::Diverged { step, loss }))
    }

    /// A replica's state to continue from.
    pub fn state(&self, replica: usize) -> Result<FitState, Error> {
        let Parameters { values, moments: [first, second], .. } = &self.fitter.parameters;
        let each = self.fitter.models[replica].parameters.len();
        let read = |from: &D::Buf| -> Result<Vec<f32>, Error> {
            let mut numbers = vec![0.0; each];
            self.fitter.device.read(from, replica * each, &mut numbers)?;
            Ok(numbers)
        };
        Ok(FitState { step: self.step, parameters: read(values)?, moments: [read(first)?, read(second)?] })
    }

    /// Continues from states of the same fit, one per replica, which must be of the same step.
    pub fn restore(&mut self, states: &[FitState]) -> Result<(), Error> {
        let each = self.fitter.models[0].parameters.len();
        let Some(FitState { step, .. }) = states.first() else { return Ok(()) };
        let fits = |state: &FitState| {
            let FitState { parameters, moments: [first, second], .. } = state;
            state.step == *step && [parameters, first, second].iter().all(|x| x.len() == each)
        };
        if *step > self.fitter.settings.steps || states.len() != self.draws.len() || !states.iter().all(fits) {
            return Err(Error::Data("the saved state of the fit has other sizes than its settings".into()));
        }
        let Fitter { device, parameters: own, steps, .. } = &mut self.fitter;
        for (replica, FitState { parameters, moments: [first, second], .. }) in states.iter().enumerate() {
            device.write(&mut own.values, replica * each, parameters);
            device.write(&mut own.moments[0], replica * each, first);
            device.write(&mut own.moments[1], replica * each, second);
        }
        (self.step, *steps) = (*step, *step as u64);
        Ok(())
    }

    /// A replica's fitted model.
    pub fn model(&self, replica: usize) -> Result<SafetyModel, Error> {
        self.diverged(replica)?;
        let model = self.fitter.model(replica)?;
        if model.parameters.iter().all(|w| w.is_finite()) {
            Ok(model)
        } else {
            Err(Error::Diverged { step: self.step, loss: f32::NAN })
        }
    }
}
