//! Replicas: several safety models in one population, ensembles among them; each agent has the bits it has with its own.

mod common;

use std::sync::Arc;

use common::{Device, Training, assert_same, assert_same_agent, random_episodes, safety_model, scaling, setup};
use prudence_agent::population::{Population, Setup};
use prudence_agent::replay::Stored;
use prudence_agent::{Algorithm, Error};
use prudence_data::Episode;

const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// Trains four agents with two models together, and each with its own model alone.
fn assert_as_with_its_own_model(algorithm: Algorithm, ensemble: usize, episodes: &[Vec<Episode>; 2]) {
    let models = [safety_model(1, ensemble), safety_model(2, ensemble)];
    let short = |mut setup: Setup<Device>| {
        setup.settings.train.steps = 200;
        setup
    };
    let mut together = Training::complete(short(setup(algorithm, &models, episodes)), &SEEDS);
    for (agent, seed) in SEEDS.into_iter().enumerate() {
        let replica = agent / 2;
        let own = setup(algorithm, &models[replica..=replica], &episodes[replica..=replica]);
        let mut alone = Training::complete(short(own), &[seed]);
        let what = format!("{} with {ensemble} members, agent {agent}", algorithm.name());
        assert_same_agent(&together, agent, &alone, 0, &what);
        let tests = [(&mut together, agent), (&mut alone, 0)]
            .map(|(training, agent)| training.population.test(&[agent], 5..8, true).unwrap().remove(0).unwrap());
        assert_same(&tests[0], &tests[1], &format!("{what}: tests"));
        assert!(together.population.model(agent) == Some(&models[replica]));
    }
}

#[test]
fn agents_of_two_replicas_have_the_bits_they_have_with_their_own_model() {
    for algorithm in [Algorithm::SafesacH, Algorithm::SafesacNoh, Algorithm::SafesacNonlb] {
        assert_as_with_its_own_model(algorithm, 1, &[Vec::new(), Vec::new()]);
    }
}

#[test]
fn agents_of_two_replicas_of_ensembles_have_the_bits_they_have_with_their_own() {
    assert_as_with_its_own_model(Algorithm::SafesacH, 3, &[Vec::new(), Vec::new()]);
    assert_as_with_its_own_model(Algorithm::SafesacNonlb, 3, &[random_episodes(5, 9), random_episodes(6, 12)]);
}

#[test]
fn replicas_learn_from_their_own_stored_episodes() {
    for lengths in [[70, 8], [0, 8]] {
        let episodes = [random_episodes(5, lengths[0]), random_episodes(6, lengths[1])];
        assert_as_with_its_own_model(Algorithm::SafesacH, 1, &episodes);
    }
}

#[test]
fn models_and_episodes_that_do_not_match_the_population_are_refused() {
    let (one, two, ensemble) = (safety_model(1, 1), safety_model(2, 1), safety_model(1, 3));
    let refused = |setup, seeds: &[u64]| Population::new(&Device::new(), setup, seeds).err();
    let h = |models: &[_]| setup(Algorithm::SafesacH, models, &[]);
    let error = refused(h(&[]), &[1]);
    assert!(matches!(error, Some(Error::NoSafetyModel { algorithm: Algorithm::SafesacH })), "{error:?}");
    let error = refused(h(&[one.clone(), two.clone()]), &[1, 2, 3]);
    assert!(matches!(error, Some(Error::Replicas { agents: 3, replicas: 2 })), "{error:?}");
    let mut unscored = h(std::slice::from_ref(&one));
    unscored.stored = Arc::new(Stored::empty(&Device::new(), &scaling(), None).unwrap());
    let error = refused(unscored, &[1]);
    assert!(matches!(error, Some(Error::StoredScores { replicas: 1, width: 0 })), "{error:?}");
    let mut of_one = h(&[one.clone(), two]);
    of_one.stored = h(std::slice::from_ref(&one)).stored;
    let error = refused(of_one, &[1, 2]);
    assert!(matches!(error, Some(Error::StoredScores { replicas: 1, width: 5 })), "{error:?}");
    let mut of_another = h(&[ensemble]);
    of_another.stored = h(&[one]).stored;
    let error = refused(of_another, &[1]);
    assert!(matches!(error, Some(Error::StoredScores { replicas: 1, width: 5 })), "{error:?}");
}

#[test]
fn sac_has_the_same_bits_with_a_model_for_its_records_as_without() {
    let with = Training::complete(setup(Algorithm::Sac, &[safety_model(1, 1)], &[]), &[1, 2]);
    let without = Training::complete(setup(Algorithm::Sac, &[], &[]), &[1, 2]);
    for agent in 0..2 {
        assert_same(&with.traces[agent].episodes, &without.traces[agent].episodes, "episodes");
        assert_same(&with.state(agent).tensors, &without.state(agent).tensors, "networks");
        assert!(with.traces[agent].records.iter().all(|record| record.predicted.len() == 2));
        assert!(without.traces[agent].records.iter().all(|record| record.predicted.is_empty()));
    }
}
