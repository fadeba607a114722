//! Compares the fit with PyTorch (`tests/golden/make_golden.py`) and with central differences, in f64.

use prudence_data::{Episode, Segment};
use prudence_nn::cpu::Buffer;
use prudence_nn::weights::from_pytorch;
use prudence_nn::{Cpu, Device, Mlp, Scalar};
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::{FitSettings, ModelShape};
use serde::Deserialize;

/// The tolerance, relative to the larger of 1 and PyTorch's absolute value.
const LIMIT: f64 = 1e-9;

#[derive(Deserialize)]
struct Case {
    observation: usize,
    action: usize,
    centre: Vec<f64>,
    scale: Vec<f64>,
    initial: Vec<f64>,
    settings: FitSettings,
    episodes: Vec<StoredEpisode>,
    segments: Vec<StoredSegment>,
    steps: Vec<Step>,
    scored: Scored,
}

#[derive(Deserialize)]
struct StoredEpisode {
    observations: Vec<f32>,
    actions: Vec<f32>,
    length: usize,
}

#[derive(Deserialize)]
struct StoredSegment {
    episode: usize,
    start: usize,
    end: usize,
    safe: bool,
    at: Option<usize>,
}

#[derive(Deserialize)]
struct Step {
    segments: Vec<usize>,
    rate: f64,
    loss: f64,
    norm: f64,
    parameters: Vec<f64>,
}

#[derive(Deserialize)]
struct Scored {
    episode: usize,
    log_prob: Vec<f64>,
    hidden: Vec<f64>,
}

fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../tests/golden/fit.json")).unwrap();
    assert!(cases.len() == 3 && cases.iter().all(|case| case.steps.len() >= 5));
    cases
}

/// PyTorch's parameters in our layout.
fn from_torch(shape: &ModelShape, parameters: &[f64]) -> Vec<f64> {
    let encoder = shape.encoder.as_ref().map_or(vec![], Mlp::tensors);
    let own = from_pytorch(&[encoder, shape.gru.tensors(), shape.decoder.tensors()].concat(), parameters);
    assert_eq!(own.len(), parameters.len());
    own
}

fn put<T: Scalar>(to: &mut Buffer<T>, from: &[f64]) {
    assert_eq!(to.len(), from.len());
    Cpu::new().steer(to, 0, from);
}

impl Case {
    /// A fitter with the case's initial parameters and normalisation.
    fn fitter<T: Scalar>(&self) -> Fitter<Cpu<T>> {
        let model =
            initial_model::<[Episode]>(&[], &[], [self.observation, self.action], 0, &self.settings, 0).unwrap();
        let initial = from_torch(model.shape(), &self.initial);
        let mut fitter = Fitter::new(&Cpu::new(), vec![model], &self.settings).unwrap();
        put(&mut fitter.parameters.values, &initial);
        put(&mut fitter.centre, &self.centre);
        put(&mut fitter.scale, &self.scale);
        fitter
    }

    fn shape(&self) -> ModelShape {
        let FitSettings { encoder, hidden, decoder, .. } = &self.settings;
        ModelShape::new(self.observation, self.action, encoder, *hidden, decoder)
    }

    fn episodes(&self) -> Vec<Episode> {
        let episode = |e: &StoredEpisode| Episode {
            observations: e.observations.clone(),
            actions: e.actions.clone(),
            rewards: vec![0.0; e.length],
            ..Episode::new(self.observation, self.action)
        };
        self.episodes.iter().map(episode).collect()
    }

    fn segments(&self) -> Vec<Segment> {
        let segment =
            |s: &StoredSegment| Segment { episode: s.episode, start: s.start, end: s.end, safe: s.safe, at: s.at };
        self.segments.iter().map(segment).collect()
    }
}

#[track_caller]
fn assert_close(what: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() < LIMIT * theirs.abs().max(1.0), "{what}: {ours}, PyTorch {theirs}");
}

fn norm<'a>(x: impl IntoIterator<Item = &'a f64>) -> f64 {
    x.into_iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn every_step_of_the_fit_equals_pytorchs() {
    for case in cases() {
        let (episodes, segments, shape) = (case.episodes(), case.segments(), case.shape());
        let mut fitter = case.fitter::<f64>();
        for (k, step) in case.steps.iter().enumerate() {
            let chosen: Vec<&Segment> = step.segments.iter().map(|i| &segments[*i]).collect();
            fitter.step(&[&episodes[..]], &[chosen], step.rate).unwrap();
            assert_close(&format!("loss of step {k}"), fitter.loss()[0], step.loss);
            assert_close(&format!("gradient norm of step {k}"), norm(&fitter.parameters.gradients), step.norm);
            let theirs = from_torch(&shape, &step.parameters);
            for (i, (ours, theirs)) in fitter.parameters.values.iter().zip(&theirs).enumerate() {
                assert_close(&format!("parameter {i} after step {k}"), *ours, *theirs);
            }
        }
        let Scored { episode, log_prob, hidden } = &case.scored;
        let (d, episode, width) = (Cpu::<f64>::new(), &episodes[*episode], case.settings.hidden);
        let scorer = fitter.scorer(-7.0).unwrap();
        let mut tracker = scorer.tracker(1).unwrap();
        let [mut s, mut a, mut active] = [case.observation, case.action, 1].map(|n| d.buffer(n).unwrap());
        d.fill(&mut active, 0, 1, 1.0);
        for (t, exact) in log_prob.iter().enumerate() {
            d.write(&mut s, 0, &episode.observations[t * case.observation..][..case.observation]);
            d.write(&mut a, 0, &episode.actions[t * case.action..][..case.action]);
            scorer.step(&mut tracker, &s, &a, &active);
            assert_close(&format!("log P of step {t}"), tracker.log_prob[0], *exact);
            for (ours, theirs) in tracker.memory[..width].iter().zip(&hidden[(t + 1) * width..]) {
                assert_close(&format!("h after step {t}"), *ours, *theirs);
            }
        }
    }
}

#[test]
fn the_gradient_of_the_fit_equals_central_differences() {
    for case in cases() {
        let (episodes, segments) = (case.episodes(), case.segments());
        let chosen: Vec<&Segment> = segments.iter().take(case.settings.batch).collect();
        let mut fitter = case.fitter::<f64>();
        let batches = [chosen];
        fitter.gradients(&[&episodes[..]], &batches).unwrap();
        let gradient = fitter.parameters.gradients.to_vec();
        let step = 1e-5;
        let difference: Vec<f64> = (0..gradient.len())
            .map(|i| {
                let start = fitter.parameters.values[i];
                let mut loss = |x: f64| {
                    fitter.parameters.values[i] = x;
                    fitter.gradients(&[&episodes[..]], &batches).unwrap();
                    fitter.loss()[0]
                };
                let slope = (loss(start + step) - loss(start - step)) / (2.0 * step);
                fitter.parameters.values[i] = start;
                slope
            })
            .collect();
        let apart: Vec<f64> = gradient.iter().zip(&difference).map(|(a, b)| a - b).collect();
        let error = norm(&apart) / norm(&difference);
        assert!(error < 1e-6, "relative error {error:e}");
    }
}

/// The error of the f32 parameters, relative to how far the parameters moved.
#[test]
fn the_f32_fit_follows_the_f64_one() {
    for case in cases() {
        let (episodes, segments, shape) = (case.episodes(), case.segments(), case.shape());
        let mut fitter = case.fitter::<f32>();
        for step in &case.steps {
            let chosen: Vec<&Segment> = step.segments.iter().map(|i| &segments[*i]).collect();
            fitter.step(&[&episodes[..]], &[chosen], step.rate).unwrap();
        }
        let last = from_torch(&shape, &case.steps[case.steps.len() - 1].parameters);
        let moved: Vec<f64> = last.iter().zip(from_torch(&shape, &case.initial)).map(|(a, b)| a - b).collect();
        let apart: Vec<f64> = fitter.parameters.values.iter().zip(&last).map(|(a, b)| f64::from(*a) - b).collect();
        let error = norm(&apart) / norm(&moved);
        assert!(error < 1e-3, "relative error {error:e}");
    }
}

/// The model is sure that unsafe prefixes are safe: each derivative is about `1 / P(unsafe)`, and their sum must be
/// finite.
#[test]
fn a_model_that_is_sure_and_wrong_gets_a_finite_gradient() {
    let case = &cases()[0];
    let steps = 1000;
    let episode = Episode {
        observations: (0..(steps + 1) * case.observation).map(|i| (i as f32).sin()).collect(),
        actions: (0..steps * case.action).map(|i| (i as f32).cos()).collect(),
        rewards: vec![0.0; steps],
        ..Episode::new(case.observation, case.action)
    };
    let segment = Segment { episode: 0, start: 0, end: steps, safe: false, at: Some(0) };
    for logit in [20.0, 60.0, 90.0, 1e4] {
        let mut fitter = case.fitter::<f32>();
        *fitter.parameters.values.last_mut().unwrap() = logit;
        fitter.gradients(&[std::slice::from_ref(&episode)], &[vec![&segment]]).unwrap();
        let (loss, gradients) = (fitter.losses().unwrap()[0], &fitter.parameters.gradients);
        assert!(loss.is_finite() && gradients.iter().all(|g| g.is_finite()), "logit {logit}: loss {loss}");
        assert!(*gradients.last().unwrap() > 0.1, "logit {logit}: pushed down by {:?}", gradients.last());
    }
}
