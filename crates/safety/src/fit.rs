//! Fitting: binary cross-entropy of labelled (sub)trajectories, blame left for the model to spread.
//!
//! The log-probability of a prefix is a prefix sum of the steps' log-probabilities, so one pass over a segment scores all
//! its prefixes and each labelled one adds its own term to the loss. Segments that start later get their own pass from
//! h = 0. The split is by episodes: no segment of a held-out episode is ever trained on.

use prudence_data::{Episode, Segment};
use prudence_env::random::stream;
use prudence_nn::kernels::sum_squares;
use prudence_nn::{Adam, AdamSettings, Mlp, Scalar, loss};
use rand::RngExt as _;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::sequences::Sequences;
use crate::{Error, SafetyModel};

/// How the safety model is made. Section `[safety]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// Layers between `(s, a)` and the GRU, the last one linear. Empty: the GRU reads `(s, a)` itself, as in the paper.
    pub encoder: Vec<usize>,
    /// Size of the GRU's memory h.
    pub hidden: usize,
    /// Layers of the decoder.
    pub decoder: Vec<usize>,
    /// Highest learning rate; it falls to 0 along a cosine.
    pub learning_rate: f64,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// The gradient's norm is clipped to this.
    pub clip: f64,
    /// Segments a step.
    pub batch: usize,
    /// Steps of gradient descent.
    pub steps: usize,
    /// Every so many steps of a segment a prefix enters the loss; the whole segment always does.
    pub prefix_every: usize,
    /// Share of the episodes held out.
    pub held_out: f64,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            encoder: vec![64, 32],
            hidden: 16,
            decoder: vec![64, 64],
            learning_rate: 5e-3,
            weight_decay: 1e-4,
            clip: 1.0,
            batch: 128,
            steps: 8000,
            prefix_every: 1,
            held_out: 0.1,
        }
    }
}

/// The model in training and everything a step needs.
pub struct Fitter<T> {
    /// The model so far.
    pub model: SafetyModel<T>,
    settings: FitSettings,
    adam: Adam<T>,
    shards: [Shard<T>; SHARDS],
}

/// A batch is cut into this many parts, whose gradients are added in order: as many threads can work at one step, and
/// the sum has the same bits however many do.
const SHARDS: usize = 2;

/// A part of a batch.
struct Shard<T> {
    sequences: Sequences<T>,
    gradients: Vec<T>,
    loss: T,
}

impl<T: Scalar> Shard<T> {
    /// The loss of these segments and its gradient, both times `scale`. Every `prefix_every`-th prefix counts.
    fn run(
        &mut self,
        model: &SafetyModel<T>,
        episodes: &[Episode],
        segments: &[&Segment],
        prefix_every: usize,
        scale: T,
    ) {
        self.loss = T::ZERO;
        if segments.is_empty() {
            return self.gradients.fill(T::ZERO);
        }
        let spans: Vec<_> = segments.iter().map(|s| (&episodes[s.episode], s.start, s.end)).collect();
        self.sequences.log_prob(model, &spans);
        let batch = self.sequences.batch();
        let (log_prob, gradient) = self.sequences.log_prob_and_gradient(); // the gradient by log P first, [T, B]
        gradient.fill(T::ZERO);
        for (b, segment) in segments.iter().enumerate() {
            let mut sum = T::ZERO;
            for t in 0..segment.end - segment.start {
                sum += log_prob[t * batch + b];
                if let Some(safe) = prefix_label(segment, t + 1, prefix_every) {
                    let (loss, derivative) = loss::trajectory_cross_entropy(sum, safe);
                    self.loss += loss * scale;
                    gradient[t * batch + b] = derivative;
                }
            }
        }
        // A prefix's log-probability is the sum of its steps': each step gets the derivatives of all longer prefixes. Scaled
        // before they are added: a model that is sure and wrong gives each close to the largest f32.
        for (b, segment) in segments.iter().enumerate() {
            let mut carried = T::ZERO;
            for t in (0..segment.end - segment.start).rev() {
                carried += gradient[t * batch + b] * scale;
                gradient[t * batch + b] = carried;
            }
        }
        let (logits, gradient) = self.sequences.decoder.output_and_gradient();
        loss::log_sigmoid_backward(logits, gradient);
        self.sequences.backward(model, &mut self.gradients);
    }
}

/// The label of a segment's first `length` steps, where it has one and it enters the loss.
///
/// The prefix that ends with the breaking step does not, unless it is the whole: the rule breaks on the state after that
/// step, which the model reads only with the next one. Asked too early it spends its doubt on every step that comes close,
/// and a sum of log-probabilities never recovers.
fn prefix_label(segment: &Segment, length: usize, prefix_every: usize) -> Option<bool> {
    let whole = length == segment.end - segment.start;
    let breaking = segment.at == Some(segment.start + length - 1);
    let wanted = whole || (length.is_multiple_of(prefix_every) && !breaking);
    wanted.then(|| segment.prefix_label(length)).flatten()
}

impl<T: Scalar> Fitter<T> {
    /// Wraps a model whose parameters are set.
    pub fn new(model: SafetyModel<T>, settings: &FitSettings) -> Self {
        let decay = AdamSettings { weight_decay: settings.weight_decay, ..AdamSettings::default() };
        let shard = || Shard {
            sequences: Sequences::new(&model, settings.batch.div_ceil(SHARDS)),
            gradients: vec![T::ZERO; model.parameters.len()],
            loss: T::ZERO,
        };
        Self {
            adam: Adam::new(model.parameters.len(), decay),
            shards: std::array::from_fn(|_| shard()),
            settings: settings.clone(),
            model,
        }
    }

    /// The loss of these segments and, left in `gradients`, its gradient.
    pub fn loss_and_gradient(&mut self, episodes: &[Episode], segments: &[&Segment]) -> T {
        assert!(segments.len() <= self.settings.batch, "more segments than the batch holds");
        let every = self.settings.prefix_every;
        let labelled = |s: &&Segment| (1..=s.end - s.start).filter(|n| prefix_label(s, *n, every).is_some()).count();
        let scale = T::of(1.0 / segments.iter().map(labelled).sum::<usize>().max(1) as f64);
        let (model, size, n) = (&self.model, self.settings.batch.div_ceil(SHARDS), segments.len());
        self.shards.par_iter_mut().enumerate().for_each(|(i, shard)| {
            let part = &segments[n.min(i * size)..n.min((i + 1) * size)];
            shard.run(model, episodes, part, every, scale);
        });
        let (first, others) = self.shards.split_at_mut(1);
        for other in others {
            first[0].loss += other.loss;
            first[0].gradients.iter_mut().zip(&other.gradients).for_each(|(sum, x)| *sum += *x);
        }
        first[0].loss
    }

    /// The gradient the last [`Fitter::loss_and_gradient`] left.
    pub fn gradients(&self) -> &[T] {
        &self.shards[0].gradients
    }

    /// The parameters: encoder, GRU, decoder.
    pub fn parameters(&mut self) -> &mut [T] {
        &mut self.model.parameters
    }

    /// One step of AdamW on these segments; returns the loss.
    pub fn step(&mut self, episodes: &[Episode], segments: &[&Segment], rate: f64) -> T {
        let loss = self.loss_and_gradient(episodes, segments);
        let norm = sum_squares(self.gradients()).f64().sqrt();
        let scale = if norm > self.settings.clip { self.settings.clip / norm } else { 1.0 };
        self.adam.step(&mut self.model.parameters, &self.shards[0].gradients, rate, scale);
        loss
    }
}

/// Means and inverse deviations of `(s, a)` over the steps of these episodes; a constant input is only centred.
fn moments(episodes: &[&Episode], observation: usize, action: usize) -> (Vec<f32>, Vec<f32>) {
    let mut sums = vec![(0.0f64, 0.0f64); observation + action];
    let mut count = f64::MIN_POSITIVE; // no episode: means of 0
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

/// A fresh model for this data: inputs normalised by `episodes`, PyTorch's initial weights, and an output bias under which
/// whole episodes of `horizon` steps start out safe (their sum is about -0.1).
pub fn initial_model(
    episodes: &[&Episode],
    observation: usize,
    action: usize,
    horizon: usize,
    settings: &FitSettings,
    seed: u64,
) -> SafetyModel {
    let mut model = SafetyModel::zeros(observation, action, &settings.encoder, settings.hidden, &settings.decoder);
    (model.centre, model.scale) = moments(episodes, observation, action);
    let rng = &mut stream(seed, "safety-init", 0);
    let encoder = model.encoder.as_ref().map_or(0, Mlp::parameters);
    let (encoder, rest) = model.parameters.split_at_mut(encoder);
    let (gru, decoder) = rest.split_at_mut(model.gru.parameters());
    if let Some(shape) = &model.encoder {
        shape.init(encoder, rng);
    }
    model.gru.init(gru, rng);
    model.decoder.init(decoder, rng);
    if let Some(bias) = decoder.last_mut() {
        *bias = (10.0 * (horizon as f32 + 1.0)).ln();
    }
    model
}

/// Fits a model to the training segments. `progress` hears the step and the loss.
pub fn fit(
    episodes: &[Episode],
    training: &[Segment],
    horizon: usize,
    settings: &FitSettings,
    seed: u64,
    mut progress: impl FnMut(usize, f32),
) -> Result<SafetyModel, Error> {
    let Some(first) = training.first().map(|s| &episodes[s.episode]) else {
        return Err(Error::Data("no labelled episode to train on: run `prudence label` first".into()));
    };
    for (verdict, name) in [(true, "safe"), (false, "unsafe")] {
        if !training.iter().any(|s| s.safe == verdict) {
            return Err(Error::Data(format!("every training label is the same: not one {name} episode to learn from")));
        }
    }
    let (observation, action) = (first.observations.len() / (first.len() + 1), first.actions.len() / first.len());
    let mut used: Vec<usize> = training.iter().map(|s| s.episode).collect();
    used.sort_unstable();
    used.dedup();
    let used: Vec<&Episode> = used.into_iter().map(|i| &episodes[i]).collect();
    let model = initial_model(&used, observation, action, horizon, settings, seed);
    let mut fitter = Fitter::new(model, settings);
    let mut rng = stream(seed, "safety-batches", 0);
    let mut batch = Vec::with_capacity(settings.batch);
    for step in 0..settings.steps {
        batch.clear();
        batch.extend((0..settings.batch).map(|_| &training[rng.random_range(0..training.len())]));
        let along = step as f64 / settings.steps as f64;
        let rate = settings.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * along).cos());
        let loss = fitter.step(episodes, &batch, rate);
        if !loss.is_finite() || !fitter.gradients().iter().all(|g| g.is_finite()) {
            return Err(Error::Diverged { step });
        }
        progress(step + 1, loss);
    }
    Ok(fitter.model)
}
