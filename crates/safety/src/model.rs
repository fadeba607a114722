//! The model itself: its shape, its file, and scoring.

use prudence_data::Episode;
use prudence_nn::weights::{Reader, Writer};
use prudence_nn::{Gru, Mlp, MlpWork, Scalar, loss, weights};

use crate::sequences::Sequences;

/// What can go wrong with a safety model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file is not a safety model, or is damaged.
    #[error("{0}")]
    Weights(#[from] weights::Error),
    /// The header lacks something or holds nonsense.
    #[error("not a safety model: header `{key}` is {given}, expected {expected}")]
    Header {
        /// Which line of the header.
        key: &'static str,
        /// What stands there.
        given: String,
        /// What would be accepted.
        expected: String,
    },
    /// The model was made for other observations or actions.
    #[error(
        "the safety model reads observations of {model_observation} and actions of {model_action} numbers; \
         this task has {observation} and {action}: fit a model on this task's episodes (`prudence fit`)"
    )]
    Dimensions {
        /// The model's.
        model_observation: usize,
        /// The model's.
        model_action: usize,
        /// The task's.
        observation: usize,
        /// The task's.
        action: usize,
    },
    /// Numbers ran away.
    #[error("fitting diverged at step {step}; try a smaller safety.learning_rate")]
    Diverged {
        /// Steps of gradient descent so far.
        step: usize,
    },
    /// Nothing to learn from.
    #[error("{0}")]
    Data(String),
}

/// A recurrent safety model over observations and actions in the environment's units.
#[derive(Clone, Debug)]
pub struct SafetyModel<T = f32> {
    observation: usize,
    action: usize,
    /// Means and inverse deviations of `(s, a)`, by which inputs are normalised.
    pub(crate) centre: Vec<T>,
    pub(crate) scale: Vec<T>,
    /// What the GRU reads of `(s, a)`: a few features, or `(s, a)` itself where there is none (the paper's form).
    ///
    /// A GRU's gates are linear in their input; a strip or a disc is not, and only the memory can count steps inside one.
    pub(crate) encoder: Option<Mlp>,
    pub(crate) gru: Gru,
    pub(crate) decoder: Mlp,
    /// Encoder, GRU, decoder.
    pub(crate) parameters: Vec<T>,
}

/// The history of one episode in progress, as the model and the agent see it.
#[derive(Clone, Debug)]
pub struct Tracker<T = f32> {
    /// h, the model's memory before the next step.
    pub hidden: Vec<T>,
    /// The running sum C of log-probabilities, kept at or above the floor.
    pub sum: T,
    floor: T,
    /// `(s, a)`; the GRU's input; the decoder's.
    rows: [Vec<T>; 3],
    scratch: [Vec<T>; 3],
    layers: [Vec<T>; 2],
}

impl<T: Scalar> Tracker<T> {
    /// Forgets the history: the start of an episode.
    pub fn reset(&mut self) {
        self.hidden.fill(T::ZERO);
        self.sum = T::ZERO;
    }

    /// What joins the observation for the agent: h, then the share of the floor used up. Without the floor scores pile up
    /// after a violation and the multiplier never comes back.
    pub fn write_memory(&self, out: &mut [T]) {
        let (hidden, used) = out.split_at_mut(self.hidden.len());
        hidden.copy_from_slice(&self.hidden);
        used[0] = self.sum / self.floor;
    }

    /// The score the agent gets for a step of this log-probability: how far the floored running sum falls.
    pub fn score(&mut self, log_prob: T) -> T {
        let before = self.sum;
        self.sum = (before + log_prob).max(self.floor);
        self.sum - before
    }
}

impl<T: Scalar> SafetyModel<T> {
    /// A model of this shape, its parameters still missing: a file's sizes are not believed before its tensors are seen.
    fn shaped(observation: usize, action: usize, encoder: &[usize], hidden: usize, decoder: &[usize]) -> Self {
        let inputs = observation + action;
        let encoder = encoder.split_last().map(|(features, layers)| Mlp::new(inputs, layers, *features));
        let gru = Gru { inputs: encoder.as_ref().map_or(inputs, Mlp::outputs), hidden };
        let decoder = Mlp::new(inputs + hidden, decoder, 1);
        let (centre, scale) = (vec![T::ZERO; inputs], vec![T::ONE; inputs]);
        Self { observation, action, centre, scale, encoder, gru, decoder, parameters: Vec::new() }
    }

    /// A model of this shape with all parameters zero.
    pub(crate) fn zeros(
        observation: usize,
        action: usize,
        encoder: &[usize],
        hidden: usize,
        decoder: &[usize],
    ) -> Self {
        let mut model = Self::shaped(observation, action, encoder, hidden, decoder);
        let encoder = model.encoder.as_ref().map_or(0, Mlp::parameters);
        model.parameters = vec![T::ZERO; encoder + model.gru.parameters() + model.decoder.parameters()];
        model
    }

    /// Numbers of an observation and an action together.
    pub(crate) fn inputs(&self) -> usize {
        self.observation + self.action
    }

    /// The number of numbers an agent gets beside its observation: h and the running sum.
    pub fn memory(&self) -> usize {
        self.gru.hidden + 1
    }

    /// The size of h.
    pub fn hidden(&self) -> usize {
        self.gru.hidden
    }

    /// Refuses a task whose observations or actions are of another size.
    pub fn check(&self, observation: usize, action: usize) -> Result<(), Error> {
        if (self.observation, self.action) == (observation, action) {
            return Ok(());
        }
        let (model_observation, model_action) = (self.observation, self.action);
        Err(Error::Dimensions { model_observation, model_action, observation, action })
    }

    /// The parameters of encoder, GRU and decoder.
    pub(crate) fn split(&self) -> (&[T], &[T], &[T]) {
        let (encoder, rest) = self.parameters.split_at(self.encoder.as_ref().map_or(0, Mlp::parameters));
        let (gru, decoder) = rest.split_at(self.gru.parameters());
        (encoder, gru, decoder)
    }

    /// Writes the normalised `(s, a)`.
    pub(crate) fn normalise(&self, observation: &[T], action: &[T], out: &mut [T]) {
        let values = observation.iter().chain(action);
        for (((out, x), centre), scale) in out.iter_mut().zip(values).zip(&self.centre).zip(&self.scale) {
            *out = (*x - *centre) * *scale;
        }
    }

    /// A tracker at the start of an episode, with this floor on the running sum (negative).
    pub fn tracker(&self, floor: f64) -> Tracker<T> {
        Tracker {
            hidden: vec![T::ZERO; self.gru.hidden],
            sum: T::ZERO,
            floor: T::of(floor),
            rows: [self.inputs(), self.gru.inputs, self.decoder.inputs()].map(|n| vec![T::ZERO; n]),
            scratch: Default::default(),
            layers: Default::default(),
        }
    }

    /// `log P(psi_t = 1 | s_t, h_t, a_t)`, read before the memory moves on to `h_{t+1}`.
    pub fn step(&self, tracker: &mut Tracker<T>, observation: &[T], action: &[T]) -> T {
        let (encoder, gru, decoder) = self.split();
        let Tracker { hidden, rows: [input, features, row], scratch, layers, .. } = tracker;
        self.normalise(observation, action, input);
        row[..input.len()].copy_from_slice(input);
        row[input.len()..].copy_from_slice(hidden);
        let mut logit = [T::ZERO];
        self.decoder.forward_one(decoder, row, &mut logit, layers);
        let features = match &self.encoder {
            None => input,
            Some(shape) => {
                shape.forward_one(encoder, input, features, layers);
                features
            }
        };
        self.gru.step(gru, features, hidden, scratch);
        -(-logit[0]).softplus()
    }

    /// `log P` for rows whose memory is known: `observation [N, S]`, `hidden [N, H]` (lying `stride` apart), `action [N, A]`.
    pub fn decode(
        &self,
        observations: &[T],
        hidden: &[T],
        stride: usize,
        actions: &[T],
        rows: &mut Vec<T>,
        work: &mut MlpWork<T>,
        out: &mut Vec<T>,
    ) {
        let (n, width, inputs) = (actions.len() / self.action, self.decoder.inputs(), self.inputs());
        rows.resize(n * width, T::ZERO);
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            let (input, memory) = row.split_at_mut(inputs);
            self.normalise(
                &observations[i * self.observation..][..self.observation],
                &actions[i * self.action..],
                input,
            );
            memory.copy_from_slice(&hidden[i * stride..][..self.gru.hidden]);
        }
        work.set_batch(n);
        self.decoder.forward(self.split().2, rows, 1, work);
        out.resize(n, T::ZERO);
        loss::log_sigmoid(work.output(), out);
    }

    /// A workspace for [`SafetyModel::decode`].
    pub fn decoder_work(&self, batch: usize) -> MlpWork<T> {
        MlpWork::new(&self.decoder, 1, batch)
    }

    /// Bytes of a safetensors file; PyTorch loads `gru.*` into `nn.GRU` and `decoder.*` into `nn.Sequential`.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut file = Writer::default();
        let (encoder, gru, decoder) = self.split();
        if let Some(shape) = &self.encoder {
            file.network("encoder.", &shape.tensors(), encoder);
            let sizes: Vec<_> = shape.hidden_sizes().iter().chain([&shape.outputs()]).map(usize::to_string).collect();
            file.metadata("encoder", sizes.join(","));
        }
        file.network("gru.", &self.gru.tensors(), gru);
        file.network("decoder.", &self.decoder.tensors(), decoder);
        file.tensor("centre", &[self.inputs()], &self.centre);
        file.tensor("scale", &[self.inputs()], &self.scale);
        file.metadata("format", "prudence safety model 1".into());
        file.metadata("observation", self.observation.to_string());
        file.metadata("action", self.action.to_string());
        file.metadata("hidden", self.gru.hidden.to_string());
        let sizes: Vec<_> = self.decoder.hidden_sizes().iter().map(usize::to_string).collect();
        file.metadata("decoder", sizes.join(","));
        Ok(file.finish()?)
    }

    /// The model in a file's bytes, every header line and shape checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let file = Reader::new(bytes)?;
        let header = |key: &'static str, expected: &str| {
            file.metadata(key).ok_or_else(|| Error::Header { key, given: "missing".into(), expected: expected.into() })
        };
        let count = |key: &'static str, text: &str| match text.trim().parse::<usize>() {
            Ok(n) if (1..=65_536).contains(&n) => Ok(n),
            _ => Err(Error::Header {
                key,
                given: format!("`{text}`"),
                expected: "a whole number from 1 to 65536".into(),
            }),
        };
        let format = "prudence safety model 1";
        let given = header("format", format)?;
        if given != format {
            return Err(Error::Header { key: "format", given: given.into(), expected: format.into() });
        }
        let number = |key| count(key, header(key, "a whole number")?);
        let sizes = |key: &'static str, text: &str| match text {
            "" => Ok(Vec::new()),
            sizes => sizes.split(',').map(|s| count(key, s)).collect::<Result<_, _>>(),
        };
        let encoder: Vec<usize> = sizes("encoder", file.metadata("encoder").unwrap_or_default())?;
        let decoder: Vec<usize> = sizes("decoder", header("decoder", "layer sizes")?)?;
        let (observation, action) = (number("observation")?, number("action")?);
        let mut model = Self::shaped(observation, action, &encoder, number("hidden")?, &decoder);
        if let Some(shape) = &model.encoder {
            model.parameters = file.network("encoder.", &shape.tensors())?;
        }
        model.parameters.extend(file.network::<T>("gru.", &model.gru.tensors())?);
        model.parameters.extend(file.network::<T>("decoder.", &model.decoder.tensors())?);
        model.centre = file.tensor("centre", &[model.inputs()])?;
        model.scale = file.tensor("scale", &[model.inputs()])?;
        Ok(model)
    }
}

impl SafetyModel<f32> {
    /// Step-by-step log-probabilities of whole episodes, many at a time: `[T]` for each. Order is kept.
    pub fn score(&self, episodes: &[&Episode]) -> Vec<Vec<f32>> {
        const BATCH: usize = 64;
        let mut scores = Vec::with_capacity(episodes.len());
        let mut sequences = Sequences::new(self, BATCH);
        for chunk in episodes.chunks(BATCH) {
            let spans: Vec<_> = chunk.iter().map(|e| (*e, 0, e.len())).collect();
            let log_prob = sequences.log_prob(self, &spans);
            for (b, episode) in chunk.iter().enumerate() {
                scores.push((0..episode.len()).map(|t| log_prob[t * BATCH + b]).collect());
            }
        }
        scores
    }
}
