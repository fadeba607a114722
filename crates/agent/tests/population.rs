//! Agents of a population share nothing: each has the bits it has alone, whatever the lengths of the others' episodes.

mod common;

use common::{assert_as_alone, random_episodes, safety_model, setup};
use prudence_agent::Algorithm;

const SEEDS: [u64; 3] = [1, 2, 3];

#[test]
fn agents_have_the_bits_they_have_alone() {
    for algorithm in Algorithm::ALL {
        let together = assert_as_alone(setup(algorithm, &[safety_model(1, 1)], &[]), &SEEDS, algorithm.name());
        let lengths = together.traces.iter().map(|trace| trace.episodes.iter().map(|e| e.len()).collect::<Vec<_>>());
        let mut lengths: Vec<_> = lengths.collect();
        assert!(lengths.iter().flatten().min() < lengths.iter().flatten().max(), "episodes of different lengths");
        lengths.dedup();
        assert_eq!(lengths.len(), 3, "different episodes for each agent");
        for agent in 0..3 {
            let (counters, trace) = (together.population.counters(agent), &together.traces[agent]);
            assert!(counters.update > 200 && trace.records.len() > 5, "{counters:?}");
            assert!(trace.episodes.iter().any(|e| e.terminated) && trace.episodes.iter().any(|e| !e.terminated));
            let own: u64 = trace.episodes.iter().map(|e| e.len() as u64).sum();
            assert_eq!((own, trace.episodes.len() as u64), (counters.step, counters.episode));
        }
        let constrained = algorithm.constraint().is_some();
        let moved =
            |agent: usize| together.traces[agent].records.iter().any(|r| r.multiplier != 0.5 && r.multiplier != 0.0);
        assert_eq!((0..3).all(moved), constrained, "the multipliers move");
        assert_eq!((0..3).any(|agent| together.population.selected_step(agent).is_some()), constrained);
    }
}

#[test]
fn agents_that_learn_from_stored_episodes_have_the_bits_they_have_alone() {
    let model = safety_model(2, 1);
    for (episodes, fit) in [(6, true), (60, false)] {
        let mut setup = setup(Algorithm::SafesacH, std::slice::from_ref(&model), &[random_episodes(3, episodes)]);
        setup.settings.train.steps = 100; // half of the capacity is for stored episodes
        assert_eq!(setup.stored.lengths(0).sum::<u64>() <= setup.settings.train.capacity as u64 / 2, fit);
        let together = assert_as_alone(setup, &SEEDS, &format!("{episodes} episodes"));
        assert!((0..3).all(|agent| together.population.counters(agent).update >= 100), "no warm-up");
    }
}

/// The last update of an agent may be in another pass than that of the others.
#[test]
fn fractional_numbers_of_updates_leave_each_agent_its_own_measurements() {
    for updates_per_step in [0.07, 0.3, 1.5, 2.25] {
        let mut setup = setup(Algorithm::SafesacNonlb, &[safety_model(1, 1)], &[]);
        setup.settings.train.updates_per_step = updates_per_step;
        setup.settings.train.steps = 250;
        let together = assert_as_alone(setup, &SEEDS, &format!("{updates_per_step} updates per step"));
        for agent in 0..3 {
            let counters = together.population.counters(agent);
            let own = &together.traces[agent].episodes;
            let mut warm_up = 0;
            own.iter().for_each(|e| warm_up += if warm_up < 60 { e.len() as u64 } else { 0 });
            let updates = counters.update as f64 + counters.pending_updates;
            assert!((updates - (counters.step - warm_up) as f64 * updates_per_step).abs() < 1e-9);
        }
    }
}
