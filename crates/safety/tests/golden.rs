//! The fit against PyTorch (`tests/golden/make_golden.py`) and against central differences, in f64.

use prudence_data::{Episode, Segment};
use prudence_nn::weights::Writer;
use prudence_nn::{Gru, Mlp, Scalar};
use prudence_safety::fit::Fitter;
use prudence_safety::{FitSettings, SafetyModel};
use serde::Deserialize;

/// Relative to the larger of 1 and the number.
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

impl Case {
    /// The model as a file would bring it: f64 has no other way in.
    fn model<T: Scalar>(&self) -> SafetyModel<T> {
        let (inputs, FitSettings { encoder, hidden, decoder, .. }) = (self.observation + self.action, &self.settings);
        let encoder = encoder.split_last().map(|(features, layers)| Mlp::new(inputs, layers, *features));
        let gru = Gru { inputs: encoder.as_ref().map_or(inputs, Mlp::outputs), hidden: *hidden };
        let decoder = Mlp::new(inputs + hidden, decoder, 1);
        let cast = |x: &[f64]| x.iter().map(|x| T::of(*x)).collect::<Vec<_>>();
        let (first, rest) = self.initial.split_at(encoder.as_ref().map_or(0, Mlp::parameters));
        let (second, third) = rest.split_at(gru.parameters());
        assert_eq!(third.len(), decoder.parameters());
        let mut file = Writer::default();
        if let Some(encoder) = &encoder {
            file.network("encoder.", &encoder.tensors(), &cast(first));
        }
        file.network("gru.", &gru.tensors(), &cast(second));
        file.network("decoder.", &decoder.tensors(), &cast(third));
        file.tensor("centre", &[inputs], &cast(&self.centre));
        file.tensor("scale", &[inputs], &cast(&self.scale));
        let sizes = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let header = [
            ("format", "prudence safety model 1".into()),
            ("observation", self.observation.to_string()),
            ("action", self.action.to_string()),
            ("encoder", sizes(&self.settings.encoder)),
            ("hidden", hidden.to_string()),
            ("decoder", sizes(&self.settings.decoder)),
        ];
        header.into_iter().for_each(|(key, value)| file.metadata(key, value));
        SafetyModel::from_bytes(&file.finish().unwrap()).unwrap()
    }

    fn episodes(&self) -> Vec<Episode> {
        let episode = |e: &StoredEpisode| Episode {
            observations: e.observations.clone(),
            actions: e.actions.clone(),
            rewards: vec![0.0; e.length],
            ..Episode::default()
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

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

#[test]
fn every_step_of_the_fit_equals_pytorchs() {
    for case in cases() {
        let (episodes, segments) = (case.episodes(), case.segments());
        let mut fitter = Fitter::new(case.model::<f64>(), &case.settings);
        for (k, step) in case.steps.iter().enumerate() {
            let chosen: Vec<&Segment> = step.segments.iter().map(|i| &segments[*i]).collect();
            let loss = fitter.step(&episodes, &chosen, step.rate);
            assert_close(&format!("loss of step {k}"), loss, step.loss);
            assert_close(&format!("gradient norm of step {k}"), norm(fitter.gradients()), step.norm);
            for (i, (ours, theirs)) in fitter.parameters().iter().zip(&step.parameters).enumerate() {
                assert_close(&format!("parameter {i} after step {k}"), *ours, *theirs);
            }
        }
        let Scored { episode, log_prob, hidden } = &case.scored;
        let (episode, width) = (&episodes[*episode], case.settings.hidden);
        let mut tracker = fitter.model.tracker(-7.0);
        for (t, exact) in log_prob.iter().enumerate() {
            let wide = |x: &[f32], n: usize| x[t * n..][..n].iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let (s, a) = (wide(&episode.observations, case.observation), wide(&episode.actions, case.action));
            assert_close(&format!("log P of step {t}"), fitter.model.step(&mut tracker, &s, &a), *exact);
            for (ours, theirs) in tracker.hidden.iter().zip(&hidden[(t + 1) * width..]) {
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
        let mut fitter = Fitter::new(case.model::<f64>(), &case.settings);
        fitter.loss_and_gradient(&episodes, &chosen);
        let gradient = fitter.gradients().to_vec();
        let step = 1e-5;
        let difference: Vec<f64> = (0..gradient.len())
            .map(|i| {
                let start = fitter.parameters()[i];
                let mut loss = |x: f64| {
                    fitter.parameters()[i] = x;
                    fitter.loss_and_gradient(&episodes, &chosen)
                };
                let slope = (loss(start + step) - loss(start - step)) / (2.0 * step);
                fitter.parameters()[i] = start;
                slope
            })
            .collect();
        let apart: Vec<f64> = gradient.iter().zip(&difference).map(|(a, b)| a - b).collect();
        let error = norm(&apart) / norm(&difference);
        assert!(error < 1e-6, "relative error {error:e}");
    }
}

/// In the product's type, relative to how far the parameters went.
#[test]
fn the_f32_fit_follows_the_f64_one() {
    for case in cases() {
        let (episodes, segments) = (case.episodes(), case.segments());
        let mut fitter = Fitter::new(case.model::<f32>(), &case.settings);
        for step in &case.steps {
            let chosen: Vec<&Segment> = step.segments.iter().map(|i| &segments[*i]).collect();
            fitter.step(&episodes, &chosen, step.rate);
        }
        let last = &case.steps[case.steps.len() - 1].parameters;
        let moved: Vec<f64> = last.iter().zip(&case.initial).map(|(a, b)| a - b).collect();
        let apart: Vec<f64> = fitter.parameters().iter().zip(last).map(|(a, b)| f64::from(*a) - b).collect();
        let error = norm(&apart) / norm(&moved);
        assert!(error < 1e-3, "relative error {error:e}");
    }
}

/// Unsafe prefixes that the model is sure of: each slope is about `1 / P(unsafe)`, and their sum must not overflow.
#[test]
fn a_model_that_is_sure_and_wrong_gets_a_finite_gradient() {
    let case = &cases()[0];
    let steps = 1000;
    let episode = Episode {
        observations: (0..(steps + 1) * case.observation).map(|i| (i as f32).sin()).collect(),
        actions: (0..steps * case.action).map(|i| (i as f32).cos()).collect(),
        rewards: vec![0.0; steps],
        ..Episode::default()
    };
    let segment = Segment { episode: 0, start: 0, end: steps, safe: false, at: Some(0) };
    for logit in [20.0, 60.0, 90.0, 1e4] {
        let mut fitter = Fitter::new(case.model::<f32>(), &case.settings);
        *fitter.parameters().last_mut().unwrap() = logit;
        let loss = fitter.loss_and_gradient(std::slice::from_ref(&episode), &[&segment]);
        let gradients = fitter.gradients();
        assert!(loss.is_finite() && gradients.iter().all(|g| g.is_finite()), "logit {logit}: loss {loss}");
        assert!(*gradients.last().unwrap() > 0.1, "logit {logit}: pushed down by {:?}", gradients.last());
    }
}
