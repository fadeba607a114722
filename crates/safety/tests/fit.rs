//! Fitting learns a rule about the history, is reproducible to the bit, and rejects data that it cannot learn from.

mod common;

use common::*;
use prudence_data::{Episode, Segment};
use prudence_safety::fit::Fitter;
use prudence_safety::quality::{Quality, predictions};
use prudence_safety::{Error, Fit, FitData, FitSettings, SafetyModel};

fn learn(with_step: bool, steps: usize, seed: u64) -> (SafetyModel, Quality, Vec<Episode>) {
    let (episodes, segments) = at_most_one(1500, 0, with_step);
    let settings = FitSettings {
        encoder: vec![16, 8],
        hidden: 8,
        decoder: vec![16, 16],
        batch: 32,
        steps,
        ..FitSettings::default()
    };
    let model = fit(&episodes, &segments, &settings, seed).unwrap();
    let (held_out, truth) = at_most_one(400, 1, true);
    let quality = Quality::of(&predictions(&scorer(&[&model]), &held_out[..], &truth).unwrap());
    assert!((0.3..0.7).contains(&quality.safe_share), "{quality:?}");
    (model, quality, held_out)
}

#[test]
fn a_fit_learns_a_rule_about_history_from_one_bit_per_episode() {
    let (_, quality, _) = learn(false, 2000, 1);
    assert!(quality.accuracy > 0.95 && quality.balanced_accuracy > 0.95, "{quality:?}");
}

#[test]
fn a_fit_on_prefixes_blames_the_step_that_breaks_the_rule() {
    // The prefix that ends with the breaking step is not in the loss, so a fit may blame the step after it, as with
    // seeds 1 and 2; with the other four of the first six seeds, it blames the breaking step in every episode.
    let (model, quality, held_out) = learn(true, 1200, 3);
    assert!(quality.accuracy > 0.95 && quality.balanced_accuracy > 0.95, "{quality:?}");
    let scores = score(&model, &held_out.iter().collect::<Vec<_>>());
    let (mut right, mut all) = (0u32, 0u32);
    for (scores, episode) in scores.iter().zip(&held_out) {
        let over: Vec<usize> = (0..STEPS).filter(|t| episode.observations[*t] > 0.8).collect();
        if let Some(breaking) = over.get(1) {
            // The breaking step should have the lowest log P so far; the first step above 0.8 was allowed.
            let worst = (0..=*breaking).min_by(|a, b| scores.log_prob[*a].total_cmp(&scores.log_prob[*b]));
            right += u32::from(worst == Some(*breaking));
            all += 1;
        }
    }
    assert!(f64::from(right) > 0.95 * f64::from(all), "{right} of {all}");
}

fn short_settings() -> FitSettings {
    FitSettings { batch: 8, steps: 20, ..settings() }
}

fn short(settings: &FitSettings, seed: u64) -> SafetyModel {
    let (episodes, segments) = at_most_one(40, 0, true);
    let settings = FitSettings { encoder: settings.encoder.clone(), ensemble: settings.ensemble, ..short_settings() };
    fit(&episodes, &segments, &settings, seed).unwrap()
}

#[test]
fn the_same_seed_fits_the_same_bits() {
    for settings in [settings(), FitSettings { ensemble: 3, ..settings() }] {
        let make = |seed| short(&settings, seed).to_bytes().unwrap();
        assert!(make(1) == make(1));
        assert!(make(1) != make(2));
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_bits() {
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| short(&settings(), 1).to_bytes().unwrap())
    };
    assert!(with(1) == with(2) && with(2) == with(5));
}

#[test]
fn the_members_of_an_ensemble_differ_and_the_first_is_what_a_fit_without_one_gives() {
    let settings = FitSettings { ensemble: 3, ..settings() };
    let alone = FitSettings { ensemble: 1, ..settings.clone() };
    let parameters = |settings: &FitSettings| {
        let mut all = Vec::new();
        changed(short(settings, 1), settings, |own| all.push(bits(own)));
        all
    };
    let all = parameters(&settings);
    assert!(all.len() == 3 && all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    assert_eq!(all[0], parameters(&alone)[0]);
}

/// Each member has its own batches, its own optimiser and its own clipping.
#[test]
fn each_member_takes_the_steps_that_it_takes_alone() {
    let (episodes, segments) = at_most_one(40, 0, true);
    let settings = FitSettings { ensemble: 3, batch: 6, clip: 0.5, ..settings() };
    let alone = FitSettings { ensemble: 1, ..settings.clone() };
    let fresh = |settings: &FitSettings| untrained(&episodes, STEPS, settings, 5);
    let mut together = Fitter::new(&CPU, vec![fresh(&settings)], &settings).unwrap();
    let each = together.parameters.each;
    let mut apart: Vec<_> = (0..3)
        .map(|member| {
            let mut fitter = Fitter::new(&CPU, vec![fresh(&alone)], &alone).unwrap();
            fitter.parameters.values.copy_from_slice(&together.parameters.values[member * each..][..each]);
            fitter
        })
        .collect();
    for step in 0..5 {
        // Batches of different sizes, some of them empty.
        let batch =
            |member: usize| segments.iter().skip(7 * step + 3 * member).take([6, 4, step % 2][member]).collect();
        let batches: Vec<Vec<&Segment>> = (0..3).map(batch).collect();
        together.step(&[&episodes[..]], &batches, 1e-2).unwrap();
        for (member, fitter) in apart.iter_mut().enumerate() {
            fitter.step(&[&episodes[..]], &batches[member..=member], 1e-2).unwrap();
            let own = &together.parameters.values[member * each..][..each];
            assert_eq!(bits(own), bits(&fitter.parameters.values), "member {member}, step {step}");
            assert_eq!(together.losses().unwrap()[member], fitter.losses().unwrap()[0]);
        }
    }
}

#[test]
fn a_fit_that_continues_from_its_state_gives_the_bits_of_an_uninterrupted_one() {
    let (episodes, segments) = at_most_one(40, 0, true);
    let settings = FitSettings { ensemble: 2, batch: 8, steps: 30, ..settings() };
    let one = |seed| vec![FitData { episodes: &episodes[..], training: &segments, seed }];
    let whole = fit(&episodes, &segments, &settings, 1).unwrap();
    for at in [0, 1, 19, 20, 29, 30] {
        let begin = || Fit::new(&CPU, one(1), STEPS, &settings).unwrap();
        let mut first = begin();
        (0..at).for_each(|_| first.step().unwrap());
        let state = first.state(0).unwrap();
        assert_eq!(state.step, at);
        let mut second = begin();
        second.restore(&[state]).unwrap();
        while !second.done() {
            second.step().unwrap();
        }
        assert!(second.model(0).unwrap().to_bytes().unwrap() == whole.to_bytes().unwrap(), "interrupted after {at}");
    }
    let mut other = Fit::new(&CPU, one(1), STEPS, &short_settings()).unwrap();
    let state = Fit::new(&CPU, one(1), STEPS, &settings).unwrap().state(0).unwrap();
    assert!(matches!(other.restore(&[state]), Err(Error::Data(_))));
}

#[test]
fn replicas_fitted_together_have_the_bits_that_they_have_alone() {
    let [(few, few_segments), (more, more_segments)] = [at_most_one(30, 0, true), at_most_one(40, 3, true)];
    let settings = FitSettings { ensemble: 2, batch: 8, steps: 30, ..settings() };
    let data = vec![
        FitData { episodes: &few[..], training: &few_segments, seed: 1 },
        FitData { episodes: &more[..], training: &more_segments, seed: 2 },
    ];
    let mut together = Fit::new(&CPU, data, STEPS, &settings).unwrap();
    while !together.done() {
        together.step().unwrap();
    }
    for (replica, alone) in
        [fit(&few, &few_segments, &settings, 1), fit(&more, &more_segments, &settings, 2)].into_iter().enumerate()
    {
        let bytes = alone.unwrap().to_bytes().unwrap();
        assert!(together.model(replica).unwrap().to_bytes().unwrap() == bytes, "replica {replica}");
    }
}

#[test]
fn a_replica_that_diverges_leaves_the_others_alone() {
    let (good, segments) = at_most_one(30, 0, true);
    let mut bad = good.clone();
    bad.iter_mut().for_each(|episode| episode.observations[0] = f32::INFINITY);
    let settings = FitSettings { batch: 8, steps: 30, ..settings() };
    let data = |episodes| FitData { episodes, training: &segments[..], seed: 1 };
    let mut fit = Fit::new(&CPU, vec![data(&bad[..]), data(&good[..])], STEPS, &settings).unwrap();
    while !fit.done() {
        fit.step().unwrap();
    }
    assert!(matches!(fit.model(0), Err(Error::Diverged { .. })));
    assert!(
        fit.model(1).unwrap().to_bytes().unwrap()
            == self::fit(&good, &segments, &settings, 1).unwrap().to_bytes().unwrap()
    );
}

#[test]
fn a_fit_needs_both_verdicts() {
    let (episodes, segments) = at_most_one(50, 0, true);
    for verdict in [true, false] {
        let one_sided: Vec<Segment> = segments.iter().copied().filter(|s| s.safe == verdict).collect();
        let error = fit(&episodes, &one_sided, &settings(), 1).unwrap_err();
        let missing = if verdict { "unsafe" } else { "safe" };
        assert!(matches!(&error, Error::Data(text) if text.contains(&format!("no {missing} episode"))), "{error}");
    }
    assert!(matches!(fit(&episodes, &[], &settings(), 1), Err(Error::Data(_))));
}

#[test]
fn a_fit_that_diverges_says_so() {
    let (episodes, segments) = at_most_one(40, 0, true);
    let settings = FitSettings { batch: 8, steps: 200, learning_rate: 1e38, ..settings() };
    let error = fit(&episodes, &segments, &settings, 1).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error}");
}
