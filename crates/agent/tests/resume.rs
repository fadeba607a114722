//! A killed training that is resumed from each agent's own checkpoint gives the bits of an uninterrupted one.

mod common;

use common::{
    Training, assert_resumes, assert_same_agent, killed, random_episodes, safety_model, setup, without_signals,
};
use prudence_agent::population::AgentState;
use prudence_agent::{Algorithm, Error};
use prudence_data::Episode;

const SEEDS: [u64; 3] = [1, 2, 3];

#[test]
fn resume_equals_uninterrupted_run() {
    for algorithm in Algorithm::ALL {
        let setup = setup(algorithm, &[safety_model(1, 1)], &[]);
        assert_resumes(setup.clone(), &SEEDS, &[3, 14, 21], algorithm.name()); // one in its warm-up
        assert_resumes(setup, &[2], &[17], algorithm.name());
    }
}

#[test]
fn resume_with_stored_episodes_equals_uninterrupted_run() {
    let mut setup = setup(Algorithm::SafesacH, &[safety_model(2, 3)], &[random_episodes(3, 30)]);
    setup.settings.train.steps = 200;
    assert_resumes(setup.clone(), &SEEDS, &[3, 5, 14], "three members");
    assert_resumes(setup, &[3], &[7], "three members");
}

/// Between some ends of episodes there is no update at all.
#[test]
fn resume_with_rare_updates_equals_uninterrupted_run() {
    let mut setup = setup(Algorithm::SafesacH, &[safety_model(1, 1)], &[]);
    setup.settings.train.updates_per_step = 0.07;
    assert_resumes(setup.clone(), &SEEDS, &[11, 16, 20], "0.07 updates per step");
    for at in [12, 13, 14, 15] {
        assert_resumes(setup.clone(), &[1], &[at], &format!("0.07 updates per step, episode {at}"));
    }
}

#[test]
fn a_state_that_does_not_match_is_rejected_and_changes_nothing() {
    let (model, other) = (safety_model(1, 1), safety_model(2, 1));
    let setup_of = |model| setup(Algorithm::SafesacH, std::slice::from_ref(model), &[]);
    let checkpoint = killed(setup_of(&model), &[1], &[20]).remove(0);
    let (state, episodes) = (checkpoint.state, without_signals(&checkpoint.episodes));
    assert!(!state.selected.is_empty());
    let outcome = |model, state: &AgentState, episodes: &[Episode]| {
        let mut training = Training::new(setup_of(model), &[4, 1]);
        let before = training.state(1);
        let error = training.population.restore(1, state.clone(), episodes).err();
        assert_eq!(training.state(1) == before, error.is_some());
        error
    };
    assert!(outcome(&model, &state, &episodes).is_none());
    assert!(matches!(outcome(&other, &state, &episodes), Some(Error::OtherModel)));
    assert!(matches!(outcome(&model, &state, &episodes[1..]), Some(Error::OtherEpisodes)));
    let mut swapped = episodes.clone();
    swapped[0] = swapped[1].clone();
    assert_ne!(swapped[0].len(), episodes[0].len());
    assert!(matches!(outcome(&model, &state, &swapped), Some(Error::OtherEpisodes)));
    let mut wider = state.clone();
    wider.tensors[2].1.push(0.0);
    assert!(matches!(outcome(&model, &wider, &episodes), Some(Error::OtherNetworks)));
    let mut fewer = state.clone();
    fewer.tensors.pop();
    assert!(matches!(outcome(&model, &fewer, &episodes), Some(Error::OtherNetworks)));
    let mut renamed = state.clone();
    renamed.tensors[10].0 = "policy";
    assert!(matches!(outcome(&model, &renamed, &episodes), Some(Error::OtherNetworks)));
    let mut shorter = state.clone();
    shorter.selected[0].policy.pop();
    assert!(matches!(outcome(&model, &shorter, &episodes), Some(Error::OtherNetworks)));
    let mut larger = state;
    larger.selected[0].model = safety_model(1, 2);
    assert!(matches!(outcome(&model, &larger, &episodes), Some(Error::ModelShape)));
}

/// A checkpoint made after a model was replaced: the population gets that model first.
#[test]
fn a_state_with_another_model_is_restored_after_that_model_was_put_in_place() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    let data = [random_episodes(3, 12)];
    let begin = |seeds: &[u64]| Training::new(setup(Algorithm::SafesacH, std::slice::from_ref(&old), &data), seeds);
    let replace = |training: &mut Training| {
        training.population.replace_models(&[(0, new.clone())]).unwrap();
    };
    let mut whole = begin(&[1]);
    (0..60).for_each(|_| drop(whole.lockstep()));
    replace(&mut whole);
    while whole.traces[0].episodes.len() < 15 {
        whole.lockstep();
    }
    let (state, episodes) = (whole.state(0), whole.traces[0].episodes.clone());
    let records = whole.traces[0].records.clone();
    whole.run();
    let mut resumed = begin(&[1]);
    replace(&mut resumed);
    resumed.population.restore(0, state, &without_signals(&episodes)).unwrap();
    (resumed.traces[0].episodes, resumed.traces[0].records) = (episodes, records);
    resumed.run();
    assert_same_agent(&resumed, 0, &whole, 0, "resumed");
}
