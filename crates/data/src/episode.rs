//! One episode: its observations, actions and rewards, and the signals that a rule may read.

use std::borrow::Cow;
use std::ops::Range;

use crate::Error;

/// A complete trajectory of T steps. It never changes once it is stored; its labels are kept in the label log.
///
/// ```
/// use prudence_data::Episode;
///
/// let episode = Episode {
///     observations: vec![0.0, 0.5, 1.5], // after the reset and after each of the two steps
///     actions: vec![0.5, 1.0],
///     rewards: vec![0.5, 1.0],
///     signals: vec![0.5, 1.0], // a single signal, the speed
///     ..Episode::new(1, 1)
/// };
/// assert_eq!((episode.len(), episode.total_reward()), (2, 1.5));
/// assert_eq!(episode.observation(2), [1.5]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Episode {
    /// The number of values in an observation.
    pub observation_width: usize,
    /// The number of values in an action.
    pub action_width: usize,
    /// `[T + 1, observation]`: the observation after the reset, then the one after each step.
    pub observations: Vec<f32>,
    /// `[T, action]`, in the environment's units.
    pub actions: Vec<f32>,
    /// `[T]`
    pub rewards: Vec<f32>,
    /// `[T, signal]`: measured on the state after each step. Signals are for rules and people; learners never read
    /// them.
    pub signals: Vec<f64>,
    /// Whether the last step was terminal. Otherwise the episode was truncated at the horizon.
    pub terminated: bool,
}

impl Episode {
    /// An episode without steps or observations.
    pub fn new(observation_width: usize, action_width: usize) -> Self {
        Self {
            observation_width,
            action_width,
            observations: Vec::new(),
            actions: Vec::new(),
            rewards: Vec::new(),
            signals: Vec::new(),
            terminated: false,
        }
    }

    /// T, the number of steps.
    pub fn len(&self) -> usize {
        self.rewards.len()
    }

    /// Whether the episode has no steps.
    pub fn is_empty(&self) -> bool {
        self.rewards.is_empty()
    }

    /// The observation before step `t`; for t = T, the last one.
    pub fn observation(&self, t: usize) -> &[f32] {
        &self.observations[t * self.observation_width..][..self.observation_width]
    }

    /// The action of step `t`.
    pub fn action(&self, t: usize) -> &[f32] {
        &self.actions[t * self.action_width..][..self.action_width]
    }

    /// The undiscounted return.
    pub fn total_reward(&self) -> f64 {
        self.rewards.iter().map(|r| f64::from(*r)).sum()
    }
}

/// Episodes of one shape that are read by their index, in memory or in a file.
pub trait Episodes: Sync {
    /// The number of episodes.
    fn count(&self) -> usize;

    /// The number of steps of an episode.
    fn steps(&self, episode: usize) -> usize;

    /// An episode; one that is read from a file has no signals.
    fn episode(&self, episode: usize) -> Result<Cow<'_, Episode>, Error>;

    /// Reads some steps of an episode into `to`, whose content is replaced.
    fn read_steps(&self, episode: usize, steps: Range<usize>, to: &mut Steps) -> Result<(), Error>;
}

/// Consecutive steps of an episode: all observations before them, and all actions.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// `[steps, observation]`
    pub observations: Vec<f32>,
    /// `[steps, action]`
    pub actions: Vec<f32>,
    /// The bytes of a file, before they are decoded.
    pub(crate) bytes: Vec<u8>,
}

impl<E: std::borrow::Borrow<Episode> + Sync> Episodes for [E] {
    fn count(&self) -> usize {
        self.len()
    }

    fn steps(&self, episode: usize) -> usize {
        self[episode].borrow().len()
    }

    fn episode(&self, episode: usize) -> Result<Cow<'_, Episode>, Error> {
        Ok(Cow::Borrowed(self[episode].borrow()))
    }

    fn read_steps(&self, episode: usize, steps: Range<usize>, to: &mut Steps) -> Result<(), Error> {
        let episode = self[episode].borrow();
        let (s, a) = (episode.observation_width, episode.action_width);
        to.observations.clear();
        to.observations.extend_from_slice(&episode.observations[steps.start * s..steps.end * s]);
        to.actions.clear();
        to.actions.extend_from_slice(&episode.actions[steps.start * a..steps.end * a]);
        Ok(())
    }
}
