//! Scoring: one pass, step by step and prefix by prefix say the same; files; the floor; and that a fit learns.

use proptest::prelude::*;
use prudence_data::{Episode, Segment};
use prudence_core::random::stream;
use prudence_nn::weights::Writer;
use prudence_nn::{Gru, Mlp};
use prudence_safety::fit::{Fitter, initial_model};
use prudence_safety::quality::{Quality, predictions};
use prudence_safety::{Error, FitSettings, SafetyModel, fit};

const OBSERVATION: usize = 3;
const ACTION: usize = 2;

fn settings() -> FitSettings {
    FitSettings { encoder: vec![10, 6], hidden: 7, decoder: vec![12, 9], ..FitSettings::default() }
}

/// Episodes of 1 to 40 steps.
fn episodes(n: usize) -> Vec<Episode> {
    let mut rng = stream(3, "test-episodes", 0);
    let mut numbers = |n: usize| (0..n).map(|_| rng.random_range(-2.0f32..2.0)).collect::<Vec<_>>();
    let one = |i: usize| {
        let steps = 1 + i * 17 % 40;
        Episode {
            observations: numbers((steps + 1) * OBSERVATION),
            actions: numbers(steps * ACTION),
            rewards: vec![0.0; steps],
            ..Episode::default()
        }
    };
    (0..n).map(one).collect()
}

/// A model whose scores spread widely and hang on its memory.
fn model() -> SafetyModel {
    let data = episodes(20);
    let model = initial_model(&data.iter().collect::<Vec<_>>(), OBSERVATION, ACTION, 0, &settings(), 5);
    let mut fitter = Fitter::new(model, &settings());
    fitter.parameters().iter_mut().for_each(|w| *w *= 2.5);
    *fitter.parameters().last_mut().unwrap() = 0.0;
    fitter.model
}

/// The same, but the decoder is blind to (s, a): its score is a function of the memory alone.
fn model_that_reads_memory_alone() -> SafetyModel {
    let mut fitter = Fitter::new(model(), &settings());
    let (inputs, hidden) = (OBSERVATION + ACTION, settings().hidden);
    let (encoder, gru) = (Mlp::new(inputs, &[10], 6), Gru { inputs: 6, hidden });
    let first_layer = encoder.parameters() + gru.parameters();
    let rows = fitter.parameters()[first_layer..].chunks_exact_mut(inputs + hidden).take(settings().decoder[0]);
    rows.for_each(|row| row[..inputs].fill(0.0));
    fitter.model
}

fn stepped(model: &SafetyModel, episode: &Episode) -> Vec<f32> {
    let mut tracker = model.tracker(-7.0);
    let rows = episode.observations.chunks_exact(OBSERVATION).zip(episode.actions.chunks_exact(ACTION));
    rows.map(|(s, a)| model.step(&mut tracker, s, a)).collect()
}

#[track_caller]
fn assert_close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    for (t, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "step {t}: {a} != {b}");
    }
}

#[test]
fn step_by_step_equals_one_pass() {
    let (model, episodes) = (model(), episodes(70)); // more than one batch
    let scores = model.score(&episodes.iter().collect::<Vec<_>>());
    let all = scores.concat();
    let (low, high) = (all.iter().copied().fold(0.0, f32::min), all.iter().copied().fold(-9.0, f32::max));
    assert!(high - low > 0.5, "scores hardly differ: {low} to {high}");
    for (scores, episode) in scores.iter().zip(&episodes) {
        assert_close(scores, &stepped(&model, episode));
    }
}

#[test]
fn decode_with_known_memory_equals_step() {
    let (model, episode) = (model(), &episodes(40)[25]);
    let (mut tracker, mut memory, mut exact) = (model.tracker(-7.0), Vec::new(), Vec::new());
    for (s, a) in episode.observations.chunks_exact(OBSERVATION).zip(episode.actions.chunks_exact(ACTION)) {
        let at = memory.len();
        memory.resize(at + model.memory(), 0.0);
        tracker.write_memory(&mut memory[at..]);
        exact.push(model.step(&mut tracker, s, a));
    }
    let (mut rows, mut work, mut out) = (vec![f32::NAN; 3], model.decoder_work(200), vec![f32::NAN; 3]);
    let observations = &episode.observations[..episode.len() * OBSERVATION];
    model.decode(observations, &memory, model.memory(), &episode.actions, &mut rows, &mut work, &mut out);
    assert_close(&out, &exact);
}

#[test]
fn prefix_scores_equal_separate_passes() {
    let (model, episodes) = (model(), episodes(40));
    let long = episodes.iter().max_by_key(|e| e.len()).unwrap();
    let whole = &model.score(&[long])[0];
    for steps in 1..=long.len() {
        let prefix = Episode {
            observations: long.observations[..(steps + 1) * OBSERVATION].to_vec(),
            actions: long.actions[..steps * ACTION].to_vec(),
            rewards: vec![0.0; steps],
            ..Episode::default()
        };
        assert_close(&model.score(&[&prefix])[0], &whole[..steps]);
    }
}

/// With a decoder that reads memory alone, (s_t, a_t) may show from step t + 1 on, and must show there.
#[test]
fn the_score_at_t_reads_h_t_and_not_the_next() {
    let model = model_that_reads_memory_alone();
    let episode = &episodes(40)[25];
    let steps = episode.len();
    assert!(steps > 20);
    for (way, score) in
        [("one pass", (|m, e| m.score(&[e]).remove(0)) as fn(&SafetyModel, &Episode) -> _), ("steps", stepped)]
    {
        let before = score(&model, episode);
        for t in [0, 1, 9, steps - 2] {
            let mut changed = episode.clone();
            changed.actions[t * ACTION] += 1.5;
            changed.observations[t * OBSERVATION + 1] -= 1.5;
            let after = score(&model, &changed);
            assert_eq!(before[..=t], after[..=t], "{way}: what happens at {t} is not remembered at {t}");
            assert!(
                (before[t + 1] - after[t + 1]).abs() > 1e-3,
                "{way}: what happened at {t} is forgotten at {}",
                t + 1
            );
        }
    }
}

#[test]
fn every_episode_starts_without_a_memory() {
    let model = model_that_reads_memory_alone();
    let scores = model.score(&episodes(30).iter().collect::<Vec<_>>());
    assert!(scores.iter().all(|s| s[0] == scores[0][0]));
    assert!(scores.iter().filter(|s| s.len() > 1).any(|s| (s[1] - s[0]).abs() > 1e-3));
}

#[test]
fn the_company_in_a_batch_does_not_change_scores() {
    let (model, episodes) = (model(), episodes(130));
    let all: Vec<&Episode> = episodes.iter().collect();
    let together = model.score(&all);
    let backwards = model.score(&all.iter().rev().copied().collect::<Vec<_>>());
    for (i, episode) in all.iter().enumerate() {
        assert_close(&together[i], &model.score(&[episode])[0]);
        assert_close(&together[i], &backwards[all.len() - 1 - i]);
    }
    assert!(model.score(&[]).is_empty());
}

#[test]
fn a_model_file_is_read_to_the_bit() {
    let model = model();
    let bytes = model.to_bytes().unwrap();
    let read = SafetyModel::<f32>::from_bytes(&bytes).unwrap();
    assert!(read.to_bytes().unwrap() == bytes);
    let episodes = episodes(10);
    let episodes: Vec<_> = episodes.iter().collect();
    assert_eq!(read.score(&episodes), model.score(&episodes));
    assert_eq!((read.hidden(), read.memory()), (7, 8));
}

#[test]
fn models_with_and_without_encoder_and_hidden_layers_are_read_too() {
    let data = episodes(30);
    let data: Vec<_> = data.iter().collect();
    for (encoder, decoder) in [(vec![], vec![5]), (vec![4], vec![]), (vec![9, 4], vec![5]), (vec![], vec![])] {
        let settings = FitSettings { encoder, decoder, ..settings() };
        let model = initial_model(&data, OBSERVATION, ACTION, 9, &settings, 5);
        let bytes = model.to_bytes().unwrap();
        let read = SafetyModel::<f32>::from_bytes(&bytes).unwrap();
        assert!(read.to_bytes().unwrap() == bytes);
        for (scores, episode) in read.score(&data).iter().zip(&data) {
            assert_close(scores, &stepped(&model, episode));
        }
    }
}

#[test]
fn a_model_of_other_dimensions_is_refused() {
    let model = model();
    model.check(OBSERVATION, ACTION).unwrap();
    for (s, a) in [(OBSERVATION + 1, ACTION), (OBSERVATION, ACTION - 1), (ACTION, OBSERVATION)] {
        let error = model.check(s, a).unwrap_err();
        assert!(matches!(error, Error::Dimensions { observation, action, .. } if (observation, action) == (s, a)));
    }
}

/// A model file, its header lines and one tensor as told.
fn file(header: &[(&str, &str)], shape: &[usize], fill: f32) -> Vec<u8> {
    let gru = Gru { inputs: OBSERVATION + ACTION, hidden: 4 };
    let decoder = Mlp::new(gru.inputs + gru.hidden, &[6], 1);
    let mut file = Writer::default();
    file.network("gru.", &gru.tensors(), &vec![0.1f32; gru.parameters()]);
    file.network("decoder.", &decoder.tensors(), &vec![0.1f32; decoder.parameters()]);
    file.tensor("centre", shape, &vec![fill; shape.iter().product()]);
    file.tensor("scale", &[gru.inputs], &vec![1.0f32; gru.inputs]);
    let lines = [
        ("format", "prudence safety model 1"),
        ("observation", "3"),
        ("action", "2"),
        ("hidden", "4"),
        ("decoder", "6"),
    ];
    for (key, value) in lines.iter().chain(header) {
        file.metadata(key, (*value).into()); // a later line replaces an earlier one
    }
    file.finish().unwrap()
}

#[test]
fn a_header_of_nonsense_is_refused() {
    SafetyModel::<f32>::from_bytes(&file(&[], &[5], 0.0)).unwrap();
    for line in [
        ("format", "prudence safety model 2"),
        ("observation", "0"),
        ("observation", "-3"),
        ("observation", "three"),
        ("action", ""),
        ("encoder", "6,0"),
        ("encoder", "a"),
        ("hidden", "1e3"),
        ("hidden", "65537"),
        ("hidden", "99999999999999999999999"),
        ("decoder", "6,"),
        ("decoder", "6,,6"),
        ("decoder", "6;6"),
    ] {
        let error = SafetyModel::<f32>::from_bytes(&file(&[line], &[5], 0.0)).unwrap_err();
        assert!(matches!(&error, Error::Header { key, .. } if *key == line.0), "{line:?}: {error}");
    }
}

/// Sizes that would need terabytes are an error about the tensors, before any memory is asked for.
#[test]
fn a_header_of_huge_sizes_is_refused_without_the_memory() {
    let layers = vec!["65536"; 1000].join(",");
    let huge = [
        ("observation", "65536"),
        ("action", "65536"),
        ("hidden", "65536"),
        ("decoder", layers.as_str()),
        ("encoder", layers.as_str()),
    ];
    for header in [&huge[..], &huge[..1], &huge[2..3], &huge[3..4], &huge[4..]] {
        let error = SafetyModel::<f32>::from_bytes(&file(header, &[5], 0.0)).unwrap_err();
        assert!(matches!(error, Error::Weights(_)), "{error}");
    }
}

#[test]
fn other_tensors_are_refused() {
    for (shape, fill) in [(&[4][..], 0.0), (&[5, 1], 0.0), (&[5], f32::NAN), (&[5], f32::INFINITY)] {
        assert!(matches!(SafetyModel::<f32>::from_bytes(&file(&[], shape, fill)), Err(Error::Weights(_))));
    }
    assert!(matches!(SafetyModel::<f64>::from_bytes(&file(&[], &[5], 0.0)), Err(Error::Weights(_))), "another type");
    let (bytes, empty) = (Writer::default().finish().unwrap(), Vec::new());
    for bytes in [bytes, empty, b"not a model".to_vec()] {
        assert!(SafetyModel::<f32>::from_bytes(&bytes).is_err());
    }
}

proptest! {
    #[test]
    fn a_cut_model_file_is_refused(share in 0.0..1.0f64) {
        let bytes = file(&[], &[5], 0.0);
        prop_assert!(SafetyModel::<f32>::from_bytes(&bytes[..(share * bytes.len() as f64) as usize]).is_err());
    }

    /// A changed byte makes another number or an error, never a panic.
    #[test]
    fn a_changed_model_file_never_panics(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = file(&[], &[5], 0.0);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(model) = SafetyModel::<f32>::from_bytes(&bytes) {
            prop_assert_eq!(model.memory(), 5);
        }
    }

    #[test]
    fn garbage_is_no_model(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(SafetyModel::<f32>::from_bytes(&bytes).is_err());
    }

    /// Scores telescope to the floored sum, are never positive, and nothing counts below the floor.
    #[test]
    fn scores_add_up_to_a_sum_that_never_falls_below_the_floor(
        log_probs in prop::collection::vec(prop_oneof![-1e-3..0.0f32, -3.0..0.0f32, -50.0..0.0f32], 1..60),
        floor in -10.0..-0.5f64,
    ) {
        let mut tracker = model().tracker(floor);
        let (mut total, mut exact) = (0.0f64, 0.0f64);
        for log_prob in log_probs {
            let score = tracker.score(log_prob);
            exact = (exact + f64::from(log_prob)).max(f64::from(floor as f32));
            total += f64::from(score);
            prop_assert!(log_prob - 1e-6 <= score && score <= 0.0, "{score} for {log_prob}");
            prop_assert!(tracker.sum >= floor as f32);
            prop_assert!((f64::from(tracker.sum) - exact).abs() < 1e-5);
            prop_assert!((total - exact).abs() < 1e-5);
            let mut memory = [f32::NAN; 8];
            tracker.write_memory(&mut memory);
            prop_assert!((f64::from(memory[7]) - exact / floor).abs() < 1e-5 && (0.0..=1.0).contains(&memory[7]));
        }
        tracker.reset();
        prop_assert_eq!(tracker.sum, 0.0);
    }
}

#[test]
fn a_reset_tracker_is_as_new() {
    let (model, episodes) = (model(), episodes(40));
    let mut used = model.tracker(-7.0);
    for (s, a) in episodes[7].observations.chunks_exact(OBSERVATION).zip(episodes[7].actions.chunks_exact(ACTION)) {
        let log_prob = model.step(&mut used, s, a);
        used.score(log_prob);
    }
    assert!(used.sum < 0.0 && used.hidden.iter().any(|h| *h != 0.0));
    used.reset();
    let rows = episodes[25].observations.chunks_exact(OBSERVATION).zip(episodes[25].actions.chunks_exact(ACTION));
    let after: Vec<f32> = rows.map(|(s, a)| model.step(&mut used, s, a)).collect();
    assert_eq!(after, stepped(&model, &episodes[25]));
}

const STEPS: usize = 20;

/// Episodes in which x > 0.8 at about 1.6 of 20 steps, and their labels: safe with at most one such step.
fn at_most_one(n: usize, index: u64, with_step: bool) -> (Vec<Episode>, Vec<Segment>) {
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
        Episode { observations: x, actions, rewards: vec![0.0; STEPS], ..Episode::default() }
    };
    let episodes = (0..n).map(&mut one).collect();
    (episodes, segments)
}

fn learn(with_step: bool, steps: usize) -> (SafetyModel, Quality, Vec<Episode>) {
    let (episodes, segments) = at_most_one(1500, 0, with_step);
    let settings = FitSettings {
        encoder: vec![16, 8],
        hidden: 8,
        decoder: vec![16, 16],
        batch: 32,
        steps,
        ..FitSettings::default()
    };
    let mut losses = Vec::new();
    let model = fit(&episodes, &segments, STEPS, &settings, 1, |_, loss| losses.push(loss)).unwrap();
    assert_eq!(losses.len(), settings.steps);
    let (held_out, truth) = at_most_one(400, 1, true);
    let quality = Quality::of(&predictions(&model, &held_out, &truth));
    assert!((0.3..0.7).contains(&quality.safe_share), "{quality:?}");
    (model, quality, held_out)
}

#[test]
fn a_fit_learns_a_rule_about_history_from_one_bit_an_episode() {
    let (_, quality, _) = learn(false, 2000);
    assert!(quality.accuracy > 0.95 && quality.balanced_accuracy > 0.95, "{quality:?}");
}

#[test]
fn a_fit_on_prefixes_blames_the_step_that_breaks_the_rule() {
    let (model, quality, held_out) = learn(true, 1200);
    assert!(quality.accuracy > 0.95 && quality.balanced_accuracy > 0.95, "{quality:?}");
    let scores = model.score(&held_out.iter().collect::<Vec<_>>());
    let (mut right, mut all) = (0, 0);
    for (scores, episode) in scores.iter().zip(&held_out) {
        let over: Vec<usize> = (0..STEPS).filter(|t| episode.observations[*t] > 0.8).collect();
        if let Some(breaking) = over.get(1) {
            // Of the steps so far, the worst is the breaking one: the first step over the line was allowed.
            let worst = (0..=*breaking).min_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            right += usize::from(worst == Some(*breaking));
            all += 1;
        }
    }
    assert!(f64::from(right as u32) > 0.95 * f64::from(all as u32), "{right} of {all}");
}

#[test]
fn the_same_seed_fits_the_same_bits() {
    let (episodes, segments) = at_most_one(40, 0, true);
    let settings = FitSettings { batch: 8, steps: 20, ..settings() };
    let make = |seed| fit(&episodes, &segments, STEPS, &settings, seed, |_, _| ()).unwrap().to_bytes().unwrap();
    assert!(make(1) == make(1));
    assert!(make(1) != make(2));
}

#[test]
fn a_fit_needs_both_verdicts() {
    let (episodes, segments) = at_most_one(50, 0, true);
    for verdict in [true, false] {
        let one_sided: Vec<Segment> = segments.iter().copied().filter(|s| s.safe == verdict).collect();
        let error = fit(&episodes, &one_sided, STEPS, &settings(), 1, |_, _| ()).unwrap_err();
        let missing = if verdict { "unsafe" } else { "safe" };
        assert!(matches!(&error, Error::Data(text) if text.contains(&format!("one {missing} episode"))), "{error}");
    }
    assert!(matches!(fit(&episodes, &[], STEPS, &settings(), 1, |_, _| ()), Err(Error::Data(_))));
}
