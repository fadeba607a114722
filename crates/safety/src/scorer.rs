//! The only module that scores steps.
//!
//! For each `(s, a)` of an episode, a [`Scorer`] computes the memory, log P and the floored score. Acting, the replay
//! buffer and tests all use it, so their scores agree.

use std::sync::Arc;

use prudence_data::Episode;
use prudence_nn::Device;
use prudence_nn::work::{Columns, GruPass, Input, MemoryRows, Normalise, Pass, floored};

use crate::model::Networks;
use crate::sequences::{Sequences, Source, Span, Weights};
use crate::{Error, ModelShape, SafetyModel};

/// Models `[R, M]` on a device: R replicas of M members. Rows are divided evenly among the replicas, in order.
pub struct Scorer<D: Device> {
    device: D,
    models: Vec<Arc<SafetyModel>>,
    shape: ModelShape,
    members: usize,
    networks: Networks,
    floor: f64,
    /// `[R, M, parameters]`
    pub(crate) parameters: D::Buf,
    /// `[R, s + a]` each
    pub(crate) centre: D::Buf,
    pub(crate) scale: D::Buf,
}

/// The history of N episodes in progress, as the models and the agents see it.
pub struct Tracker<D: Device> {
    rows: usize,
    /// `[R, M, N / R, H]`: the members' memories before the next step
    hidden: D::Buf,
    /// `[N]`: the running sum of log-probabilities, which never falls below the floor.
    pub sum: D::Buf,
    /// `[N]`: log P of the last step.
    pub log_prob: D::Buf,
    /// `[N]`: the score of the last step, which is the change of the floored sum.
    pub score: D::Buf,
    /// `[N, memory width]`: what agents see in addition to the observation: the memories, then the used share of the
    /// floor. Without the floor, scores would keep accumulating after a violation, and the multiplier could not
    /// recover.
    pub memory: D::Buf,
    input: D::Buf,
    encoder: Option<Pass<D>>,
    gru: GruPass<D>,
    decoder: Pass<D>,
}

/// A model's scores of a stored episode of T steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EpisodeScores {
    /// `[T]`: log P of each step.
    pub log_prob: Vec<f32>,
    /// `[T]`: the score of each step, which is the change of the floored sum.
    pub score: Vec<f32>,
    /// `[T + 1, memory width]`: the memory before each step and after the last one.
    pub memory: Vec<f32>,
    /// The floored sum after the last step.
    pub sum: f32,
}

impl<D: Device> Scorer<D> {
    /// Copies models of the same shape to a device; `floor` (negative) is that of the running sums.
    pub fn new(device: &D, models: &[Arc<SafetyModel>], floor: f64) -> Result<Self, Error> {
        let Some(first) = models.first() else { return Err(Error::Data("no safety model".to_owned())) };
        let (shape, members) = (first.shape.clone(), first.members);
        if models.iter().any(|model| (&model.shape, model.members) != (&shape, members)) {
            return Err(Error::Data("the safety models of a population must have the same shape".to_owned()));
        }
        let put = |part: fn(&SafetyModel) -> &Vec<f32>| -> Result<D::Buf, Error> {
            let all: Vec<f32> = models.iter().flat_map(|model| part(model)).copied().collect();
            let mut buffer = device.buffer(all.len())?;
            device.write(&mut buffer, 0, &all);
            Ok(buffer)
        };
        Ok(Self {
            parameters: put(|model| &model.parameters)?,
            centre: put(|model| &model.centre)?,
            scale: put(|model| &model.scale)?,
            networks: shape.networks(models.len() * members),
            device: device.clone(),
            models: models.to_vec(),
            members,
            floor,
            shape,
        })
    }

    /// The width of the memory that agents see in addition to the observation.
    pub fn memory_width(&self) -> usize {
        self.members * self.shape.gru.hidden + 1
    }

    fn weights(&self) -> Weights<'_, D> {
        Weights { parameters: &self.parameters, centre: &self.centre, scale: &self.scale }
    }

    fn normalise<'a>(&'a self, observation: &'a D::Buf, action: &'a D::Buf, rows: usize) -> Normalise<'a, D> {
        Normalise {
            observation,
            action,
            observation_width: self.shape.observation,
            action_width: self.shape.action,
            centre: &self.centre,
            scale: &self.scale,
            replicas: self.models.len(),
            rows: rows / self.models.len(),
        }
    }

    /// A tracker of `rows` episodes, each at its start.
    pub fn tracker(&self, rows: usize) -> Result<Tracker<D>, Error> {
        let (d, each) = (&self.device, rows / self.models.len());
        let mut tracker = Tracker {
            rows,
            hidden: d.buffer(rows * self.members * self.shape.gru.hidden)?,
            sum: d.buffer(rows)?,
            log_prob: d.buffer(rows)?,
            score: d.buffer(rows)?,
            memory: d.buffer(rows * self.memory_width())?,
            input: d.buffer(rows * self.shape.inputs())?,
            encoder: self.networks.encoder.as_ref().map(|net| Pass::new(d, net, each)).transpose()?,
            gru: GruPass::new(d, &self.networks.gru, 1, each)?,
            decoder: Pass::new(d, &self.networks.decoder, each)?,
        };
        self.remember(&mut tracker);
        Ok(tracker)
    }

    /// Clears the history of one row, at the start of an episode.
    pub fn reset(&self, tracker: &mut Tracker<D>, row: usize) {
        let (each, h) = (tracker.rows / self.models.len(), self.shape.gru.hidden);
        for member in 0..self.members {
            let at = (row / each * self.members + member) * each + row % each;
            self.device.fill(&mut tracker.hidden, at * h, h, 0.0);
        }
        self.device.fill(&mut tracker.sum, row, 1, 0.0);
        self.remember(tracker);
    }

    /// Scores one step of every active row: computes log P from `h_t`, then updates the memory to `h_{t+1}`.
    pub fn step(&self, tracker: &mut Tracker<D>, observation: &D::Buf, action: &D::Buf, active: &D::Buf) {
        let (d, nets, weights) = (&self.device, &self.networks, &self.parameters);
        let (each, h) = (tracker.rows / self.models.len(), self.shape.gru.hidden);
        d.normalise(self.normalise(observation, action, tracker.rows), &mut tracker.input);
        let input = Columns::new(&tracker.input, each, self.shape.inputs(), self.members);
        let memory = Columns::new(&tracker.hidden, each, h, 1);
        d.forward(&nets.decoder, weights, Input { first: input, second: Some(memory) }, &mut tracker.decoder);
        d.log_prob(&tracker.decoder, self.members, &mut tracker.log_prob);
        d.floor(&tracker.log_prob, self.floor, active, &mut tracker.sum, &mut tracker.score);
        let features = match (&nets.encoder, &mut tracker.encoder) {
            (Some(net), Some(pass)) => {
                d.forward(net, weights, Input { first: input, second: None }, pass);
                Columns::new(pass.output(), each, net.shape.outputs(), 1)
            }
            _ => input,
        };
        d.gru_step(&nets.gru, weights, features, &mut tracker.hidden, &mut tracker.gru);
        self.remember(tracker);
    }

    /// Sets the history of one row to that of an episode in progress, which was scored as a whole.
    pub fn continue_from(&self, tracker: &mut Tracker<D>, row: usize, scores: &EpisodeScores) {
        let (each, h, width) = (tracker.rows / self.models.len(), self.shape.gru.hidden, self.memory_width());
        let Some(last) = scores.memory.chunks_exact(width).last() else { return self.reset(tracker, row) };
        for (member, memory) in last.chunks_exact(h).take(self.members).enumerate() {
            let at = (row / each * self.members + member) * each + row % each;
            self.device.write(&mut tracker.hidden, at * h, memory);
        }
        self.device.write(&mut tracker.sum, row, &[scores.sum]);
        self.remember(tracker);
    }

    fn remember(&self, tracker: &mut Tracker<D>) {
        let rows = MemoryRows {
            hidden: &tracker.hidden,
            sum: &tracker.sum,
            floor: self.floor,
            replicas: self.models.len(),
            members: self.members,
            width: self.shape.gru.hidden,
            rows: tracker.rows,
        };
        self.device.memory(rows, &mut tracker.memory);
    }

    /// Scores whole episodes in batches; the scorer must have only one replica.
    pub fn score(&self, episodes: &[&Episode]) -> Result<Vec<EpisodeScores>, Error> {
        const ROWS: usize = 64;
        let (d, h) = (&self.device, self.shape.gru.hidden);
        let mut sequences = Sequences::new(d, &self.shape, &self.networks, self.members, ROWS, 1)?;
        let mut scores = Vec::with_capacity(episodes.len());
        for chunk in episodes.chunks(ROWS) {
            let span = |(index, episode): (usize, &&Episode)| Span { episode: index, steps: 0..episode.len() };
            let spans = [chunk.iter().enumerate().map(span).collect()];
            let steps = chunk.iter().map(|episode| episode.len()).max().unwrap_or(0);
            sequences.set_steps(d, &self.shape, &self.networks, steps)?;
            sequences.forward(d, &self.networks, &self.weights(), &Source::Host(&[chunk]), &spans)?;
            let mut log_prob = vec![0.0; steps * ROWS];
            let mut on_device = d.buffer(steps * ROWS)?;
            d.log_prob(&sequences.decoder, self.members, &mut on_device);
            d.read(&on_device, 0, &mut log_prob)?;
            let mut hidden = vec![0.0; self.members * (steps + 1) * ROWS * h];
            d.read(sequences.hidden(), 0, &mut hidden)?;
            for (n, episode) in chunk.iter().enumerate() {
                scores.push(self.episode(episode.len(), n, ROWS, steps, &log_prob, &hidden));
            }
        }
        Ok(scores)
    }

    /// Extracts the scores of sequence `n` from the results of a pass.
    fn episode(
        &self,
        len: usize,
        n: usize,
        rows: usize,
        steps: usize,
        log_prob: &[f32],
        hidden: &[f32],
    ) -> EpisodeScores {
        let (h, floor) = (self.shape.gru.hidden, self.floor as f32);
        let mut scores = EpisodeScores::default();
        let mut sum = 0.0f32;
        for t in 0..=len {
            for member in 0..self.members {
                let at = ((member * (steps + 1) + t) * rows + n) * h;
                scores.memory.extend_from_slice(&hidden[at..at + h]);
            }
            scores.memory.push(sum / floor);
            if t < len {
                let log_prob = log_prob[t * rows + n];
                let score;
                (sum, score) = floored(sum, log_prob, floor);
                scores.log_prob.push(log_prob);
                scores.score.push(score);
            }
        }
        scores.sum = sum;
        scores
    }
}
