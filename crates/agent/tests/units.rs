//! Units: what is measured, and that networks see the same whatever the environment's units are.

use prudence_agent::units::Meter;
use prudence_core::random::stream;
use prudence_data::Episode;
use rand::RngExt as _;

/// Episodes with observations of very different sizes, the last of them constant.
fn episodes(terminated: bool, observation: f32, reward: f32) -> Vec<Episode> {
    let mut rng = stream(3, "episodes", 0);
    let mut episode = |steps: usize| Episode {
        observations: (0..=steps)
            .flat_map(|_| [rng.random_range(-1.0f32..3.0), rng.random_range(900.0f32..1100.0), 0.7])
            .map(|x| x * observation)
            .collect(),
        actions: vec![0.0; steps],
        rewards: (0..steps).map(|t| (t as f32 * 0.1).sin() * 4.0 + 7.0).map(|r| r * reward).collect(),
        terminated,
        ..Episode::new(3, 1)
    };
    (0..20).map(|n| episode(30 + n)).collect()
}

fn meter(episodes: &[Episode]) -> Meter {
    let mut meter = Meter::new(3);
    episodes.iter().for_each(|episode| meter.add(episode));
    meter
}

#[test]
fn networks_see_centred_observations_of_size_one() {
    let episodes = episodes(false, 1.0, 1.0);
    let units = meter(&episodes).units(0.99);
    for i in 0..3 {
        let [centre, scale] = units.observation[i];
        let column = episodes.iter().flat_map(|e| e.observations.chunks_exact(3)).map(|row| row[i]);
        let seen: Vec<f64> = column.map(|x| f64::from((x - centre) * scale)).collect();
        let mean = seen.iter().sum::<f64>() / seen.len() as f64;
        let deviation = (seen.iter().map(|x| x * x).sum::<f64>() / seen.len() as f64).sqrt();
        let expected = if i == 2 { 0.0 } else { 1.0 };
        assert!(mean.abs() < 1e-3 && (deviation - expected).abs() < 1e-3, "column {i}: {mean} and {deviation}");
    }
}

#[test]
fn rewards_are_in_units_of_discounted_returns() {
    for (terminated, discount) in [(false, 0.99), (true, 0.99), (false, 0.5)] {
        let episodes = episodes(terminated, 1.0, 1.0);
        let [centre, scale] = meter(&episodes).units(discount).reward;
        let rewards: Vec<f32> = episodes.iter().flat_map(|e| e.rewards.clone()).collect();
        let mean = rewards.iter().sum::<f32>() / rewards.len() as f32;
        assert!((centre - if terminated { 0.0 } else { mean }).abs() < 1e-4, "where episodes end early, 0 is a reward");
        let mut returns: Vec<f64> = Vec::new();
        for episode in &episodes {
            let mut sum = 0.0;
            for reward in &episode.rewards {
                sum = discount * sum + f64::from((reward - centre) * scale);
                returns.push(sum);
            }
        }
        let n = returns.len() as f64;
        let mean = returns.iter().sum::<f64>() / n;
        let deviation = (returns.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        returns.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
        let large = returns[returns.len() * 99 / 100].abs();
        assert!((deviation - 1.0).abs() < 1e-3 || (large - 5.0).abs() < 1e-2, "{deviation} and {large}");
        assert!(deviation < 1.001 && large < 5.01);
    }
}

#[test]
fn powers_of_two_change_units_by_that_power_alone() {
    for power in [128.0f32, 1.0 / 128.0] {
        let (one, other) = (episodes(false, 1.0, 1.0), episodes(false, power, power));
        let (one, other) = (meter(&one).units(0.99), meter(&other).units(0.99));
        for ([centre, scale], [other_centre, other_scale]) in one.observation.iter().zip(&other.observation) {
            assert_eq!((centre * power, scale / power), (*other_centre, *other_scale));
        }
        assert_eq!(one.reward, [other.reward[0] / power, other.reward[1] * power]);
    }
}

#[test]
fn without_episodes_or_rewards_nothing_is_infinite() {
    assert_eq!(Meter::new(2).units(0.99).reward, [0.0, 1.0]);
    let none = Episode { observations: vec![0.0; 6], actions: vec![0.0], rewards: vec![0.0], ..Episode::new(3, 1) };
    assert_eq!(meter(&[none]).units(0.99).reward, [0.0, 1.0]);
}
