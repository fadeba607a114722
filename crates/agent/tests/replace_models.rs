//! Safety models replaced in the middle of a training, and of running episodes.

mod common;

use std::sync::Arc;

use common::{
    Device, Training, assert_same, assert_same_agent, draw, random_episodes, safety_model, scaling, scorer, settings,
    setup, stored,
};
use prudence_agent::population::Setup;
use prudence_agent::replay::{Chosen, NewStep, Replay, ReplaySettings};
use prudence_agent::{AgentUnits, Algorithm, Error};
use prudence_core::random::StreamId;
use prudence_data::Episode;
use prudence_safety::SafetyModel;

const CONSTRAINED: [Algorithm; 3] = [Algorithm::SafesacH, Algorithm::SafesacNoh, Algorithm::SafesacNonlb];

/// A new model for each replica.
fn by_replica(models: &[Arc<SafetyModel>]) -> Vec<(usize, Arc<SafetyModel>)> {
    models.iter().cloned().enumerate().collect()
}

/// Trains, with the models replaced after each of these numbers of locksteps.
fn train(setup: Setup<Device>, seeds: &[u64], replacements: &[(usize, Vec<Arc<SafetyModel>>)]) -> Training {
    let mut training = Training::new(setup, seeds);
    let mut locksteps = 0;
    for (at, models) in replacements {
        while locksteps < *at {
            training.lockstep();
            locksteps += 1;
        }
        training.population.replace_models(&by_replica(models)).unwrap();
    }
    training.run();
    training
}

#[test]
fn replacing_a_model_by_itself_changes_nothing() {
    let data = [random_episodes(5, 7), random_episodes(6, 9)];
    for (algorithm, ensemble) in CONSTRAINED.into_iter().chain([Algorithm::Sac]).flat_map(|a| [(a, 1), (a, 3)]) {
        for data in [&data, &[Vec::new(), Vec::new()]] {
            let models = vec![safety_model(1, ensemble), safety_model(2, ensemble)];
            let setup = setup(algorithm, &models, data);
            let undisturbed = Training::complete(setup.clone(), &[1, 2, 3, 4]);
            let replacements = [1, 5, 6, 7, 70, 151, 222, 333].map(|at| (at, models.clone()));
            let replaced = train(setup, &[1, 2, 3, 4], &replacements);
            for agent in 0..4 {
                let what = format!("{} with {ensemble} members, agent {agent}", algorithm.name());
                assert_same_agent(&replaced, agent, &undisturbed, agent, &what);
            }
        }
    }
}

/// A replay buffer of one agent that was filled under one model, the running episode by its tracker.
fn filled(
    model: &Arc<SafetyModel>,
    units: &AgentUnits,
    history: bool,
    data: &[Episode],
    own: &[Episode],
    running: &Episode,
) -> Replay<Device> {
    let (scorer, train) = (scorer(model), settings().train);
    let sizes = ReplaySettings {
        capacity: train.capacity,
        own_steps: train.steps as usize + common::HORIZON,
        horizon: common::HORIZON,
        history,
    };
    let chosen = Chosen { replica: 0, episodes: (0..data.len()).collect() };
    let shared = stored(std::slice::from_ref(model), &[data.to_vec()]);
    let mut replay = Replay::new(&Device::new(), &scaling(), shared, &sizes, &[chosen]).unwrap();
    replay.set_units(0, units);
    replay.restore(0, own, Some(&scorer)).unwrap();
    let d = Device::new();
    let buffer = |numbers: &[f32]| numbers.into();
    let mut tracker = scorer.tracker(1).unwrap();
    replay.start(0, &running.observations[..2], Some(&tracker));
    for t in 0..running.len() {
        let (action, next) = (running.actions[t], &running.observations[2 * t + 2..][..2]);
        scorer.step(&mut tracker, &buffer(&running.observations[2 * t..][..2]), &buffer(&[action]), &buffer(&[1.0]));
        let terminated = running.terminated && t + 1 == running.len();
        let step = NewStep { action: &[action], reward: running.rewards[t], terminated, next };
        replay.step(&[Some(step)], Some(&tracker));
    }
    let mut sum = [0.0];
    prudence_nn::Device::read(&d, &tracker.sum, 0, &mut sum).unwrap();
    replay.end(0, sum[0]);
    replay
}

/// The first `steps` steps of an episode.
fn prefix(episode: &Episode, steps: usize) -> Episode {
    Episode {
        observations: episode.observations[..2 * steps + 2].to_vec(),
        actions: episode.actions[..steps].to_vec(),
        rewards: episode.rewards[..steps].to_vec(),
        terminated: episode.terminated && steps == episode.len(),
        ..Episode::new(2, 1)
    }
}

fn assert_same_replay(one: &Replay<Device>, other: &Replay<Device>, what: &str) {
    assert_eq!((one.len(0), one.own_episodes(0)), (other.len(0), other.own_episodes(0)), "{what}");
    let stream = StreamId::new(3, "comparison", 0);
    assert_same(&draw(one, 1, 2000, stream), &draw(other, 1, 2000, stream), what);
}

#[test]
fn after_a_replacement_the_replay_is_as_if_filled_under_the_new_model() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    for (algorithm, data, at) in [
        (CONSTRAINED[0], random_episodes(5, 6), 31),
        (CONSTRAINED[1], Vec::new(), 100),
        (CONSTRAINED[2], Vec::new(), 313),
    ] {
        let what = format!("{} after {at} steps", algorithm.name());
        let (history, data) = (algorithm.history(), [data]);
        let mut training = Training::new(setup(algorithm, std::slice::from_ref(&old), &data), &[1]);
        (0..at).for_each(|_| drop(training.lockstep()));
        assert!(!training.between_episodes(0), "{what}: in the middle of an episode");
        let own = training.traces[0].episodes.clone();
        let steps = at - own.iter().map(Episode::len).sum::<usize>();
        training.population.replace_models(&[(0, new.clone())]).unwrap();
        let sums = training.population.replay().recent_sums(0, 1000);
        let stream = StreamId::new(3, "comparison", 0);
        let then = draw(training.population.replay(), 1, 2000, stream);
        while training.traces[0].episodes.len() == own.len() {
            training.lockstep();
        }
        let units = training.population.units(0).clone();
        let running = &training.traces[0].episodes[own.len()];
        assert!(running.len() > steps, "{what}: it continues");

        let exact = filled(&new, &units, history, &data[0], &own, &prefix(running, steps));
        assert_same(&then, &draw(&exact, 1, 2000, stream), &format!("{what}: when the model was replaced"));
        assert_same(&sums, &exact.recent_sums(0, 1000), &format!("{what}: sums"));
        let stale = filled(&old, &units, history, &data[0], &own, &prefix(running, steps));
        assert_ne!(then, draw(&stale, 1, 2000, stream), "{what}: the models differ");
        let exact = filled(&new, &units, history, &data[0], &own, running);
        assert_same_replay(training.population.replay(), &exact, &format!("{what}: at the end of the running episode"));
        assert_eq!(training.population.replay().recent_sums(0, 1000), exact.recent_sums(0, 1000), "{what}");
    }
}

#[test]
fn a_selected_policy_keeps_the_model_it_was_selected_with() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    let mut training = Training::new(setup(Algorithm::SafesacH, std::slice::from_ref(&old), &[]), &[1]);
    while training.population.selected_step(0).is_none() {
        training.lockstep();
    }
    let before = training.population.test(&[0], 0..5, true).unwrap();
    training.population.replace_models(&[(0, new.clone())]).unwrap();
    assert_same(&training.population.test(&[0], 0..5, true).unwrap(), &before, "the selected policy with its model");
    assert!(training.population.policy_model(0) == Some(&old) && training.population.model(0) == Some(&new));
    let state = training.state(0);
    assert!(state.selected.last().unwrap().model == old && state.model == Some(new.clone()));
    let selected = training.population.selected_step(0);
    while training.population.selected_step(0) == selected {
        training.lockstep();
    }
    assert!(training.population.policy_model(0) == Some(&new), "selected again, with the model of now");
}

#[test]
fn a_replacement_that_does_not_match_is_rejected_and_changes_nothing() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    let data = [random_episodes(5, 6)];
    let setup = setup(Algorithm::SafesacH, &[old], &data);
    let undisturbed = Training::complete(setup.clone(), &[1]);
    let mut training = Training::new(setup, &[1]);
    (0..50).for_each(|_| drop(training.lockstep()));
    let mut replace = |models: &[_]| training.population.replace_models(models).unwrap_err();
    assert!(matches!(replace(&[(0, safety_model(2, 3))]), Error::ModelShape));
    assert!(matches!(replace(&[(0, new.clone()), (1, new)]), Error::Replicas { agents: 1, replicas: 2 }));
    training.run();
    assert_same_agent(&training, 0, &undisturbed, 0, "after rejected replacements");
}

#[test]
fn a_replacement_changes_the_agents_of_its_replica_alone() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    let data = [random_episodes(5, 6), random_episodes(6, 7)];
    let setup = setup(Algorithm::SafesacH, &[old.clone(), old], &data);
    let undisturbed = Training::complete(setup.clone(), &[1, 2]);
    let mut training = Training::new(setup, &[1, 2]);
    (0..50).for_each(|_| drop(training.lockstep()));
    training.population.replace_models(&[(1, new)]).unwrap();
    training.run();
    assert_same_agent(&training, 0, &undisturbed, 0, "the other replica");
    assert!(training.traces[1].episodes != undisturbed.traces[1].episodes, "its own replica");
}
