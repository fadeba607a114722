//! Shared by the tests of safety models: episodes, models with widely spread scores, and scoring step by step.
#![allow(dead_code, reason = "each test file uses only a part")]

use std::sync::Arc;

use prudence_core::random::stream;
use prudence_data::{Episode, Segment};
use prudence_nn::Cpu;
use prudence_nn::cpu::Buffer;
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::{EpisodeScores, Error, Fit, FitData, FitSettings, SafetyModel, Scorer};
use rand::RngExt as _;

pub const OBSERVATION: usize = 3;
pub const ACTION: usize = 2;
/// Low enough that most episodes stay above it, high enough that some do not.
pub const FLOOR: f64 = -7.0;

pub const CPU: Cpu<f32> = Cpu::new();

pub fn settings() -> FitSettings {
    FitSettings { encoder: vec![10, 6], hidden: 7, decoder: vec![12, 9], ..FitSettings::default() }
}

/// Episodes of 1 to 40 steps.
pub fn episodes(n: usize) -> Vec<Episode> {
    let mut rng = stream(3, "test-episodes", 0);
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-2.0f32..2.0)).collect::<Vec<_>>();
    let one = |i: usize| {
        let steps = 1 + i * 17 % 40;
        Episode {
            observations: numbers((steps + 1) * OBSERVATION),
            actions: numbers(steps * ACTION),
            rewards: vec![0.0; steps],
            ..Episode::new(OBSERVATION, ACTION)
        }
    };
    (0..n).map(one).collect()
}

/// The first steps of an episode.
pub fn prefix(episode: &Episode, steps: usize) -> Episode {
    Episode {
        observations: episode.observations[..(steps + 1) * OBSERVATION].to_vec(),
        actions: episode.actions[..steps * ACTION].to_vec(),
        rewards: vec![0.0; steps],
        ..Episode::new(OBSERVATION, ACTION)
    }
}

/// An untrained model for episodes like these.
pub fn untrained(data: &[Episode], horizon: usize, settings: &FitSettings, seed: u64) -> SafetyModel {
    let widths = [data[0].observation_width, data[0].action_width];
    let all: Vec<usize> = (0..data.len()).collect();
    initial_model(data, &all, widths, horizon, settings, seed).unwrap()
}

/// A complete fit.
pub fn fit(
    episodes: &[Episode],
    segments: &[Segment],
    settings: &FitSettings,
    seed: u64,
) -> Result<SafetyModel, Error> {
    let mut fit = Fit::new(&CPU, vec![FitData { episodes, training: segments, seed }], STEPS, settings)?;
    while !fit.done() {
        fit.step()?;
    }
    fit.model(0)
}

/// The model with its parameters changed; `change` is called with those of each member.
pub fn changed(model: SafetyModel, settings: &FitSettings, change: impl FnMut(&mut [f32])) -> SafetyModel {
    let each = model.shape().parameters();
    let mut fitter = Fitter::new(&CPU, vec![model], settings).unwrap();
    fitter.parameters.values.chunks_exact_mut(each).for_each(change);
    fitter.model(0).unwrap()
}

/// A model with widely spread scores that depend on its memory.
pub fn model_with(settings: &FitSettings, seed: u64) -> SafetyModel {
    let data = episodes(20);
    let model = untrained(&data, 0, settings, seed);
    changed(model, settings, |parameters| {
        parameters.iter_mut().for_each(|w| *w *= 2.5);
        *parameters.last_mut().unwrap() = 0.0;
    })
}

pub fn model() -> SafetyModel {
    model_with(&settings(), 5)
}

/// The members of an ensemble as separate models.
pub fn members(model: &SafetyModel, settings: &FitSettings) -> Vec<SafetyModel> {
    let alone = FitSettings { ensemble: 1, ..settings.clone() };
    let mut all = Vec::new();
    changed(model.clone(), settings, |parameters| {
        all.push(changed(model_with(&alone, 5), &alone, |own| own.copy_from_slice(parameters)));
    });
    all
}

pub fn scorer(models: &[&SafetyModel]) -> Scorer<Cpu<f32>> {
    let models: Vec<_> = models.iter().map(|model| Arc::new((*model).clone())).collect();
    Scorer::new(&CPU, &models, FLOOR).unwrap()
}

/// Scores whole episodes in one pass.
pub fn score(model: &SafetyModel, episodes: &[&Episode]) -> Vec<EpisodeScores> {
    scorer(&[model]).score(episodes).unwrap()
}

/// Observations and actions at step `t`, side by side for all rows; 0 where an episode has ended.
pub fn rows_at(episodes: &[&Episode], t: usize) -> [Buffer<f32>; 2] {
    let at = |width: usize, of: fn(&Episode) -> &Vec<f32>| {
        let row = |e: &&Episode| if t < e.len() { of(e)[t * width..][..width].to_vec() } else { vec![0.0; width] };
        Buffer::from(&episodes.iter().flat_map(row).collect::<Vec<_>>()[..])
    };
    [at(OBSERVATION, |e| &e.observations), at(ACTION, |e| &e.actions)]
}

/// Scores episodes step by step, one per row of a tracker.
pub fn stepped(scorer: &Scorer<Cpu<f32>>, episodes: &[&Episode]) -> Vec<EpisodeScores> {
    let (mut tracker, width) = (scorer.tracker(episodes.len()).unwrap(), scorer.memory_width());
    let mut scores = vec![EpisodeScores::default(); episodes.len()];
    for t in 0..=episodes.iter().map(|e| e.len()).max().unwrap_or(0) {
        for ((scores, episode), memory) in scores.iter_mut().zip(episodes).zip(tracker.memory.chunks_exact(width)) {
            if t <= episode.len() {
                scores.memory.extend(memory);
            }
        }
        let [observation, action] = rows_at(episodes, t);
        let active: Vec<f32> = episodes.iter().map(|e| f32::from(u8::from(t < e.len()))).collect();
        scorer.step(&mut tracker, &observation, &action, &Buffer::from(&active[..]));
        for (row, scores) in scores.iter_mut().enumerate().filter(|(row, _)| t < episodes[*row].len()) {
            scores.log_prob.push(tracker.log_prob[row]);
            scores.score.push(tracker.score[row]);
        }
    }
    scores.iter_mut().zip(&tracker.sum).for_each(|(scores, sum)| scores.sum = *sum);
    scores
}

pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[track_caller]
pub fn assert_same_bits(a: &EpisodeScores, b: &EpisodeScores) {
    for (what, a, b) in
        [("log P", &a.log_prob, &b.log_prob), ("score", &a.score, &b.score), ("memory", &a.memory, &b.memory)]
    {
        assert_eq!(bits(a), bits(b), "{what}");
    }
    assert_eq!(a.sum.to_bits(), b.sum.to_bits());
}

pub const STEPS: usize = 20;

/// Episodes in which x > 0.8 at about 1.6 of 20 steps on average. They are labelled safe with at most one such step.
pub fn at_most_one(n: usize, index: u64, with_step: bool) -> (Vec<Episode>, Vec<Segment>) {
    let mut rng = stream(8, "at-most-one", index);
    let mut segments = Vec::new();
    let mut one = |episode: usize| {
        let x: Vec<f32> = (0..=STEPS)
            .map(|_| {
                if rng.random_range(0.0..1.0) < 0.08 {
                    rng.random_range(0.81..1.0)
                } else {
                    rng.random_range(0.0..0.79)
                }
            })
            .collect();
        let breaking = x[..STEPS].iter().enumerate().filter(|(_, x)| **x > 0.8).nth(1).map(|(t, _)| t);
        let at = breaking.filter(|_| with_step);
        segments.push(Segment { episode, start: 0, end: STEPS, safe: breaking.is_none(), at });
        let actions = (0..STEPS).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        Episode { observations: x, actions, rewards: vec![0.0; STEPS], ..Episode::new(1, 1) }
    };
    let episodes = (0..n).map(&mut one).collect();
    (episodes, segments)
}
