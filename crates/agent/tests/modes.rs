//! Training episodes that play the policy's mode.

mod common;

use common::{Training, random_episodes, safety_model, setup};
use prudence_agent::Algorithm;

/// Actions of each episode of an agent whose policy does not change.
fn actions(algorithm: Algorithm, mode_every: u64, log_std: Option<f64>) -> Vec<Vec<f32>> {
    let mut setup = setup(algorithm, &[safety_model(1, 1)], &[random_episodes(5, 6)]);
    setup.settings.train.updates_per_step = 0.0;
    setup.settings.train.mode_every = mode_every;
    if let Some(log_std) = log_std {
        (setup.settings.agent.log_std_min, setup.settings.agent.log_std_max) = (log_std, log_std);
    }
    Training::complete(setup, &[1]).traces.remove(0).episodes.into_iter().map(|episode| episode.actions).collect()
}

#[test]
fn every_so_many_episodes_of_a_safe_agent_play_the_mode() {
    let drawn = actions(Algorithm::SafesacH, 0, None);
    let modes = actions(Algorithm::SafesacH, 0, Some(-18.0)); // hardly any noise
    let every_third = actions(Algorithm::SafesacH, 3, None);
    let difference = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    for (index, episode) in every_third.iter().enumerate().take(12) {
        let [like_drawn, like_mode] = [&drawn, &modes].map(|other| difference(episode, &other[index]));
        let expected = (index + 1) % 3 == 0;
        assert_eq!([like_drawn == 0.0, like_mode < 1e-4], [!expected, expected], "episode {index}");
    }
    assert_eq!(actions(Algorithm::Sac, 3, None), actions(Algorithm::Sac, 0, None), "SAC draws all of its actions");
}
