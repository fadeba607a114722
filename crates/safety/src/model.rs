//! The model as stored in a file: shape, normalisation and the parameters of its members.

use prudence_nn::weights::{Reader, Writer};
use prudence_nn::{Bank, DeviceError, Gru, Mlp, Shape, weights};

/// An error about a safety model.
///
/// ```
/// use prudence_safety::{Error, SafetyModel};
///
/// let error = SafetyModel::from_bytes(b"not a safety model").unwrap_err();
/// assert!(matches!(error, Error::Weights(_)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that is not a safety model or is damaged.
    #[error("{0}")]
    Weights(#[from] weights::Error),
    /// A header entry that is missing or invalid.
    #[error("not a safety model: header `{key}` is {given}, expected {expected}")]
    Header {
        /// The key of the header entry.
        key: &'static str,
        /// The value in the file.
        given: String,
        /// What would be accepted.
        expected: String,
    },
    /// A model for observations or actions of other dimensions.
    #[error(
        "the safety model is for observations of {model_observation} and actions of {model_action} dimensions; \
         those of this task have {observation} and {action}"
    )]
    Dimensions {
        /// The dimension of the model's observations.
        model_observation: usize,
        /// The dimension of the model's actions.
        model_action: usize,
        /// The dimension of the task's observations.
        observation: usize,
        /// The dimension of the task's actions.
        action: usize,
    },
    /// A fit whose loss or parameters are no longer finite.
    #[error("fitting diverged: the loss is {loss} at step {step}")]
    Diverged {
        /// The number of gradient steps so far.
        step: usize,
        /// The loss at that step.
        loss: f32,
    },
    /// Data or models that cannot be used.
    #[error("{0}")]
    Data(String),
    /// The device is out of memory, or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Episodes cannot be read.
    #[error(transparent)]
    Episodes(#[from] prudence_data::Error),
}

/// The shape of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// The dimension of observations.
    pub observation: usize,
    /// The dimension of actions.
    pub action: usize,
    /// From `(s, a)` to the features that the GRU reads. Without an encoder it reads `(s, a)` itself, as in the paper.
    ///
    /// A GRU's gates are linear in their input before the non-linearity, so they cannot detect that a position is
    /// inside a strip or a disc; the encoder can, and the memory counts such steps.
    pub encoder: Option<Mlp>,
    /// From the features to the memory h.
    pub gru: Gru,
    /// From `(s, a, h)` to a logit.
    pub decoder: Mlp,
}

/// The networks of G members. The parameters of each are laid out as encoder, GRU, decoder.
pub(crate) struct Networks {
    pub encoder: Option<Bank<Mlp>>,
    pub gru: Bank<Gru>,
    pub decoder: Bank<Mlp>,
}

impl ModelShape {
    /// A member with these layer widths. The last width of `encoder` is its number of outputs.
    pub fn new(observation: usize, action: usize, encoder: &[usize], hidden: usize, decoder: &[usize]) -> Self {
        let inputs = observation + action;
        let encoder = encoder.split_last().map(|(features, layers)| Mlp::new(inputs, layers, *features));
        let gru = Gru { inputs: encoder.as_ref().map_or(inputs, Mlp::outputs), hidden };
        Self { observation, action, encoder, gru, decoder: Mlp::new(inputs + hidden, decoder, 1) }
    }

    /// The dimension of an observation and an action together.
    pub fn inputs(&self) -> usize {
        self.observation + self.action
    }

    /// The number of parameters of one member.
    pub fn parameters(&self) -> usize {
        self.encoder.as_ref().map_or(0, Mlp::parameters) + self.gru.parameters() + self.decoder.parameters()
    }

    pub(crate) fn networks(&self, groups: usize) -> Networks {
        let stride = self.parameters();
        let at_gru = self.encoder.as_ref().map_or(0, Mlp::parameters);
        let at_decoder = at_gru + self.gru.parameters();
        fn bank<S: Shape>(shape: S, groups: usize, offset: usize, stride: usize) -> Bank<S> {
            Bank { shape, groups, offset, stride }
        }
        Networks {
            encoder: self.encoder.clone().map(|shape| bank(shape, groups, 0, stride)),
            gru: bank(self.gru, groups, at_gru, stride),
            decoder: bank(self.decoder.clone(), groups, at_decoder, stride),
        }
    }

    /// The parameters of one member's encoder, GRU and decoder.
    pub(crate) fn split_mut<'a>(&self, parameters: &'a mut [f32]) -> [&'a mut [f32]; 3] {
        let (encoder, rest) = parameters.split_at_mut(self.encoder.as_ref().map_or(0, Mlp::parameters));
        let (gru, decoder) = rest.split_at_mut(self.gru.parameters());
        [encoder, gru, decoder]
    }

    /// The names and shapes of the tensors of one member, as in PyTorch's modules.
    fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let named = |part: &str, tensors: Vec<(String, Vec<usize>)>| {
            tensors.into_iter().map(|(name, shape)| (format!("{part}.{name}"), shape)).collect::<Vec<_>>()
        };
        let mut all = self.encoder.as_ref().map_or(Vec::new(), |encoder| named("encoder", encoder.tensors()));
        all.extend(named("gru", self.gru.tensors()));
        all.extend(named("decoder", self.decoder.tensors()));
        all
    }
}

/// A recurrent safety model over observations and actions in the environment's units: an ensemble of M members.
///
/// ```
/// use prudence_data::Episode;
/// use prudence_safety::fit::initial_model;
/// use prudence_safety::{FitSettings, SafetyModel};
///
/// let (observations, actions, rewards) = (vec![0.0, 0.5, 1.0], vec![0.5, 0.5], vec![0.0, 0.0]);
/// let episodes = [Episode { observations, actions, rewards, ..Episode::new(1, 1) }];
/// // An untrained model for episodes of two steps; `Fit` trains one.
/// let model = initial_model(&episodes[..], &[0], [1, 1], 2, &FitSettings::default(), 0)?;
/// assert_eq!((model.members(), model.memory_width()), (1, 17));
/// assert_eq!(SafetyModel::from_bytes(&model.to_bytes()?)?, model); // a safetensors file
/// # Ok::<(), prudence_safety::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SafetyModel {
    pub(crate) shape: ModelShape,
    pub(crate) members: usize,
    /// Means and inverse standard deviations of `(s, a)`, which normalise the inputs.
    pub(crate) centre: Vec<f32>,
    pub(crate) scale: Vec<f32>,
    /// `[M, parameters]`
    pub(crate) parameters: Vec<f32>,
}

const FORMAT: &str = "prudence safety model 2";

impl SafetyModel {
    /// The shape of each member.
    pub fn shape(&self) -> &ModelShape {
        &self.shape
    }

    /// The number of members of the ensemble.
    pub fn members(&self) -> usize {
        self.members
    }

    /// The width of the memory that agents see in addition to the observation: the members' memories and the used share
    /// of the floor.
    pub fn memory_width(&self) -> usize {
        self.members * self.shape.gru.hidden + 1
    }

    /// Checks that the observations and actions of a task have the dimensions of the model's.
    pub fn check(&self, observation: usize, action: usize) -> Result<(), Error> {
        let (model_observation, model_action) = (self.shape.observation, self.shape.action);
        if (model_observation, model_action) == (observation, action) {
            return Ok(());
        }
        Err(Error::Dimensions { model_observation, model_action, observation, action })
    }

    /// Adds the model to a file of weights. PyTorch loads member m's `m.gru.*` into `nn.GRU` and `m.decoder.*` into
    /// `nn.Sequential`. All names of tensors and header entries begin with `prefix`.
    pub fn write(&self, file: &mut Writer, prefix: &str) {
        let shape = &self.shape;
        for (m, parameters) in self.parameters.chunks_exact(shape.parameters()).enumerate() {
            file.network(&format!("{prefix}{m}."), &shape.tensors(), parameters);
        }
        file.tensor(format!("{prefix}centre"), &[shape.inputs()], &self.centre);
        file.tensor(format!("{prefix}scale"), &[shape.inputs()], &self.scale);
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let encoder = shape.encoder.as_ref().map(|shape| [shape.hidden_sizes(), &[shape.outputs()]].concat());
        for (key, value) in [
            ("format", FORMAT.to_owned()),
            ("observation", shape.observation.to_string()),
            ("action", shape.action.to_string()),
            ("encoder", list(&encoder.unwrap_or_default())),
            ("hidden", shape.gru.hidden.to_string()),
            ("decoder", list(shape.decoder.hidden_sizes())),
            ("members", self.members.to_string()),
        ] {
            file.metadata(&format!("{prefix}{key}"), value);
        }
    }

    /// Reads the model from a file of weights and checks every header entry and shape. No memory is allocated for sizes
    /// in the header before the tensors are known to have them.
    pub fn read(file: &Reader<'_>, prefix: &str) -> Result<Self, Error> {
        let header = |key: &'static str, expected: &str| {
            file.metadata(&format!("{prefix}{key}")).ok_or_else(|| Error::Header {
                key,
                given: "missing".into(),
                expected: expected.into(),
            })
        };
        let given = header("format", FORMAT)?;
        if given != FORMAT {
            return Err(Error::Header { key: "format", given: given.into(), expected: FORMAT.into() });
        }
        let count = |key: &'static str, text: &str| match text.trim().parse::<usize>() {
            Ok(n) if (1..=65_536).contains(&n) => Ok(n),
            _ => Err(Error::Header {
                key,
                given: format!("`{text}`"),
                expected: "a whole number from 1 to 65536".into(),
            }),
        };
        let number = |key| count(key, header(key, "a whole number")?);
        let sizes = |key: &'static str| match header(key, "layer sizes")? {
            "" => Ok(Vec::new()),
            sizes => sizes.split(',').map(|size| count(key, size)).collect::<Result<Vec<_>, _>>(),
        };
        let shape = ModelShape::new(
            number("observation")?,
            number("action")?,
            &sizes("encoder")?,
            number("hidden")?,
            &sizes("decoder")?,
        );
        let members = number("members")?;
        let mut parameters = Vec::new();
        for m in 0..members {
            parameters.extend(file.network::<f32>(&format!("{prefix}{m}."), &shape.tensors())?);
        }
        let inputs = shape.inputs();
        let column = |name: &str| file.tensor(&format!("{prefix}{name}"), &[inputs]);
        Ok(Self { members, centre: column("centre")?, scale: column("scale")?, parameters, shape })
    }

    /// The bytes of a safetensors file with only this model.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let mut file = Writer::default();
        self.write(&mut file, "");
        Ok(file.finish()?)
    }

    /// Reads the model from the bytes of such a file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Self::read(&Reader::new(bytes)?, "")
    }
}
