//! A long fit on data that saturates the model leaves no denormal numbers in gradients or moments. On many processors,
//! arithmetic with denormal numbers is a hundred times slower.

mod common;

use common::{CPU, untrained};
use prudence_core::random::stream;
use prudence_data::{Episode, Segment};
use prudence_safety::FitSettings;
use prudence_safety::fit::Fitter;
use rand::RngExt as _;

const LENGTH: usize = 60;

/// Episodes that are trivial to classify: safe if the observations are above 0, unsafe if they are below.
fn obvious(n: usize) -> (Vec<Episode>, Vec<Segment>) {
    let mut rng = stream(4, "obvious", 0);
    let episode = |i: usize| {
        let sign = if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let observations = (0..=LENGTH).map(|_| sign * rng.random_range(0.5f32..1.0)).collect();
        let actions = (0..LENGTH).map(|_| rng.random_range(-1.0f32..1.0)).collect();
        Episode { observations, actions, rewards: vec![0.0; LENGTH], ..Episode::new(1, 1) }
    };
    let episodes = (0..n).map(episode).collect();
    let segment = |episode: usize| {
        let safe = episode.is_multiple_of(2);
        Segment { episode, start: 0, end: LENGTH, safe, at: (!safe).then_some(0) }
    };
    (episodes, (0..n).map(segment).collect())
}

#[test]
fn a_long_fit_on_saturated_data_leaves_no_denormal_in_gradients_or_moments() {
    let (episodes, segments) = obvious(16);
    // With initial weights, and with weights so large that almost no gradient flows back through the gates.
    for (encoder, size) in [(vec![], 1.0), (vec![8, 4], 1.0), (vec![], 10.0), (vec![8, 4], 10.0)] {
        let settings = FitSettings { encoder, hidden: 6, decoder: vec![12, 8], batch: 8, ..FitSettings::default() };
        let mut fitter = Fitter::new(&CPU, vec![untrained(&episodes, LENGTH, &settings, 2)], &settings).unwrap();
        fitter.parameters.values.iter_mut().for_each(|w| *w *= size);
        let mut draws = stream(5, "batches", 0);
        let mut faded = 0;
        for step in 0..3000 {
            let batch = (0..8).map(|_| &segments[draws.random_range(0..segments.len())]).collect();
            fitter.step(&[&episodes[..]], &[batch], 1e-2).unwrap();
            let [first, second] = &fitter.parameters.moments;
            for (what, numbers) in [("gradient", &fitter.parameters.gradients), ("moment", first), ("square", second)] {
                let denormal = numbers.iter().find(|x| x.is_subnormal());
                assert!(denormal.is_none(), "{what} {denormal:?} at step {step}");
            }
            faded += first.iter().filter(|m| **m == 0.0).count();
        }
        let loss = fitter.losses().unwrap()[0];
        assert!(loss < 0.1 && faded > 0, "not saturated: loss {loss}, {faded} moments are 0");
    }
}
