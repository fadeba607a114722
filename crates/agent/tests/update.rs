//! What one update promises: which way it goes, what its targets are, and that agents of a population share nothing.

use prudence_agent::safesac::{Head, Learner, Networks, Steering, UpdateMetrics};
use prudence_agent::settings::AgentSettings;
use prudence_core::random::{StreamId, stream};
use prudence_nn::work::{Batch, Columns, Drawn, Input, Pass};
use prudence_nn::{Bank, Cpu, Device as _, Scalar};
use rand::RngExt as _;

const BATCH: usize = 16;
const STATE: usize = 5;
const ACTION: usize = 2;

type Double = Cpu<f64>;

fn settings() -> AgentSettings {
    AgentSettings { hidden: vec![24, 16], batch: BATCH, temperature: 0.2, ..AgentSettings::default() }
}

fn networks(population: usize, safety: bool) -> Networks {
    let mut heads = vec![Head::reward(!safety)];
    if safety {
        heads.push(Head::safety(settings().score_floor));
    }
    Networks::new(population, STATE, ACTION, &settings().hidden, heads)
}

/// A population whose agent i has the initial networks of seed `first + i`.
fn learner<T: Scalar>(population: usize, safety: bool, first: u64) -> Learner<Cpu<T>> {
    let streams = (first..first + population as u64).map(|seed| stream(seed, "networks", 0));
    Learner::new(&Cpu::new(), networks(population, safety), &settings(), streams).unwrap()
}

fn update<T: Scalar>(
    learner: &mut Learner<Cpu<T>>,
    batch: &Batch<Cpu<T>>,
    multiplier: f64,
    rate: f64,
) -> UpdateMetrics {
    let multipliers = vec![multiplier; learner.networks().heads.len() - 1];
    learner.steer(0, Some(&Steering { rate, update: 1, multipliers }));
    learner.update(batch).unwrap();
    learner.metrics().unwrap().remove(0)
}

/// A batch of random transitions, a third of them the task's end.
fn random_batch<T: Scalar>(population: usize, seed: u64) -> Batch<Cpu<T>> {
    let mut rng = stream(seed, "test-batch", 0);
    let mut batch = Batch::new(&Cpu::<T>::new(), population, BATCH, STATE, ACTION).unwrap();
    let mut fill = |x: &mut [T], low: f64, high: f64| x.fill_with(|| T::of(rng.random_range(low..high)));
    fill(&mut batch.state, -1.5, 1.5);
    fill(&mut batch.next_state, -1.5, 1.5);
    fill(&mut batch.action, -1.0, 1.0);
    fill(&mut batch.reward, -1.0, 1.0);
    fill(&mut batch.score, -0.5, 0.0);
    fill(&mut batch.not_terminal, -1.0, 2.0);
    batch.not_terminal.iter_mut().for_each(|g| *g = if *g > T::ZERO { T::ONE } else { T::ZERO });
    for (noise, purpose) in [(&mut batch.next_noise, "next"), (&mut batch.noise, "new")] {
        let mut normals = vec![0.0; noise.len()];
        StreamId::new(seed, purpose, 0).normals(0, &mut normals);
        noise.iter_mut().zip(normals).for_each(|(to, x)| *to = T::from_f32(x));
    }
    batch
}

/// Means of min Q_R, min Q_psi and log pi at the actions a policy draws at the batch's states, written out once more.
fn values(learner: &Learner<Double>, policy: &[f64], batch: &Batch<Double>) -> [f64; 3] {
    let (d, nets) = (Double::new(), learner.networks());
    let mut pass = Pass::new(&d, &nets.policy, BATCH).unwrap();
    let mut drawn = Drawn::new(&d, BATCH, ACTION).unwrap();
    let states = Columns::new(&batch.state, BATCH, STATE, 1);
    d.forward(&nets.policy, &policy.into(), Input { first: states, second: None }, &mut pass);
    d.sample(&pass, &batch.noise, settings().log_std(), &mut drawn);
    let n = nets.critics.shape.parameters();
    let one = Bank::dense(nets.critics.shape.clone(), 1);
    let q: Vec<Vec<f64>> = learner
        .agents
        .critics
        .values
        .chunks_exact(n)
        .map(|critic| {
            let mut pass = Pass::new(&d, &one, BATCH).unwrap();
            let actions = Columns::new(&drawn.action, BATCH, ACTION, 1);
            d.forward(&one, &critic.into(), Input { first: states, second: Some(actions) }, &mut pass);
            pass.output().to_vec()
        })
        .collect();
    let mean_min = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.min(*b)).sum::<f64>() / BATCH as f64;
    let safety = q.get(2..).filter(|q| q.len() == 2).map_or(0.0, |q| mean_min(&q[0], &q[1]));
    [mean_min(&q[0], &q[1]), safety, drawn.log_prob.iter().sum::<f64>() / BATCH as f64]
}

/// The step is taken on the critics as they are after their own step, so those are the frozen ones to measure with.
#[test]
fn policy_gradient_points_up() {
    for (safety, multiplier) in [(false, 0.0), (true, 0.0), (true, 0.5), (true, 30.0)] {
        for seed in 0..10 {
            let mut learner = learner::<f64>(1, safety, seed);
            let batch = random_batch(1, seed);
            let before = learner.agents.policy.values.to_vec();
            let temperature = learner.agents.temperature.values[0].exp();
            update(&mut learner, &batch, multiplier, 1e-5);
            let objective = |policy: &[f64]| {
                let [q_reward, q_safety, log_prob] = values(&learner, policy, &batch);
                (q_reward + multiplier * q_safety) / (1.0 + multiplier) - temperature * log_prob
            };
            let (before, after) = (objective(&before), objective(&learner.agents.policy.values));
            assert!(after > before, "multiplier {multiplier}, seed {seed}: {before} to {after}");
        }
    }
}

#[test]
fn a_large_multiplier_makes_the_policy_climb_the_safety_critic() {
    for seed in 0..10 {
        let mut learner = learner::<f64>(1, true, seed);
        let batch = random_batch(1, seed);
        let before = learner.agents.policy.values.to_vec();
        let temperature = learner.agents.temperature.values[0].exp();
        update(&mut learner, &batch, 1e6, 1e-5);
        let policies = [before.as_slice(), &learner.agents.policy.values];
        let [of_before, of_after] = policies.map(|policy| {
            let [_, q_safety, log_prob] = values(&learner, policy, &batch);
            q_safety - temperature * log_prob
        });
        assert!(of_after > of_before, "seed {seed}: {of_before} to {of_after}");
    }
}

/// A learner whose critics say 0 and whose target critics say `value`, everywhere; alpha is 0.
fn plain_learner(value: f64) -> Learner<Double> {
    let mut learner = learner::<f64>(1, true, 1);
    let n = learner.networks().critics.shape.parameters();
    let agents = &mut learner.agents;
    agents.critics.values.fill(0.0);
    agents.target_critics.fill(0.0);
    agents.target_critics.chunks_exact_mut(n).for_each(|critic| critic[n - 1] = value);
    agents.temperature.values.fill(-700.0);
    learner
}

/// The losses of the reward critics and of the safety critics, not rounded.
fn losses(learner: &Learner<Double>) -> [f64; 2] {
    [learner.measurements().losses[0][0], learner.measurements().losses[1][0]]
}

/// Critics that say 0 have the targets' squares as their loss.
#[test]
fn terminal_transitions_do_not_bootstrap_and_truncated_ones_do() {
    let value = -3.0;
    for not_terminal in [0.0, 1.0] {
        let mut batch = random_batch::<f64>(1, 5);
        batch.not_terminal.fill(not_terminal);
        let mut learner = plain_learner(value);
        update(&mut learner, &batch, 0.0, 1e-3);
        let beyond = settings().discount * not_terminal * value;
        let both = |y: &[f64]| 2.0 * y.iter().map(|y| (y + beyond).powi(2)).sum::<f64>() / BATCH as f64;
        let [reward, safety] = losses(&learner);
        assert!((reward - both(&batch.reward)).abs() < 1e-12, "not_terminal {not_terminal}: {reward}");
        assert!((safety - both(&batch.score)).abs() < 1e-12, "not_terminal {not_terminal}: {safety}");
    }
}

#[test]
fn what_follows_the_tasks_end_changes_nothing() {
    let critics = |change: Option<usize>| {
        let mut batch = random_batch::<f64>(1, 6);
        batch.not_terminal.fill(0.0);
        batch.not_terminal[3] = 1.0;
        if let Some(row) = change {
            batch.next_state[row * STATE..][..STATE].fill(1.25);
        }
        let mut learner = learner::<f64>(1, true, 2);
        update(&mut learner, &batch, 0.3, 1e-2);
        learner.agents.critics.values.to_vec()
    };
    let before = critics(None);
    for (row, same) in [(2, true), (3, false)] {
        assert_eq!(critics(Some(row)) == before, same, "row {row}");
    }
}

#[test]
fn safety_targets_stay_between_the_floor_and_zero() {
    let floor = settings().score_floor;
    for (value, target) in [(-50.0, floor), (50.0, 0.0)] {
        let mut batch = random_batch::<f64>(1, 7);
        batch.not_terminal.fill(1.0);
        let mut learner = plain_learner(value);
        update(&mut learner, &batch, 0.0, 1e-3);
        let [_, safety] = losses(&learner);
        assert!((safety - 2.0 * target * target).abs() < 1e-12, "{value}: {safety}");
    }
}

/// An agent's share of a buffer of three.
fn part<T: Copy>(x: &[T], agent: usize) -> Vec<T> {
    x[agent * x.len() / 3..(agent + 1) * x.len() / 3].to_vec()
}

/// Every number that an agent has learned, the moments included.
fn learned(learner: &Learner<Cpu<f32>>, agent: usize) -> Vec<Vec<u32>> {
    let (agents, p) = (&learner.agents, learner.networks().population);
    [&agents.average, &agents.target_critics]
        .into_iter()
        .chain(
            [&agents.policy, &agents.critics, &agents.temperature]
                .into_iter()
                .flat_map(|parameters| [&parameters.values, &parameters.moments[0], &parameters.moments[1]]),
        )
        .map(|x| x[agent * x.len() / p..(agent + 1) * x.len() / p].iter().map(|x| x.to_bits()).collect())
        .collect()
}

/// Agents of a population share nothing, and one that is inactive keeps all it has: each has the bits it has alone, at its
/// own learning rate and number of updates.
#[test]
fn population_members_have_the_bits_they_have_alone() {
    for safety in [true, false] {
        let mut together = learner::<f32>(3, safety, 3);
        let mut alone: Vec<Learner<Cpu<f32>>> = (0..3).map(|agent| learner(1, safety, 3 + agent)).collect();
        let temperatures = [-1.0, -2.0, -0.5];
        together.agents.temperature.values.copy_from_slice(&temperatures);
        alone.iter_mut().zip(temperatures).for_each(|(one, x)| one.agents.temperature.values[0] = x);
        let mut updates = [0; 3];
        for round in 0..9u64 {
            let batch = random_batch::<f32>(3, round);
            let active = [true, round % 3 != 1, round >= 4];
            for agent in 0..3 {
                updates[agent] += u64::from(active[agent]);
                let multipliers = if safety { vec![[0.0, 0.7, 20.0][agent]] } else { Vec::new() };
                let steering = Steering {
                    rate: [3e-3, 1e-3, 2e-2][agent] / (1 + round) as f64,
                    update: updates[agent],
                    multipliers,
                };
                let steering = active[agent].then_some(&steering);
                together.steer(agent, steering);
                alone[agent].steer(0, steering);
            }
            together.update(&batch).unwrap();
            for (agent, one) in alone.iter_mut().enumerate() {
                if active[agent] {
                    let own = |x: &[f32]| part(x, agent).as_slice().into();
                    let own = Batch {
                        state: own(&batch.state),
                        action: own(&batch.action),
                        reward: own(&batch.reward),
                        score: own(&batch.score),
                        next_state: own(&batch.next_state),
                        not_terminal: own(&batch.not_terminal),
                        noise: own(&batch.noise),
                        next_noise: own(&batch.next_noise),
                        size: BATCH,
                    };
                    one.update(&own).unwrap();
                    assert_eq!(
                        together.metrics().unwrap().remove(agent),
                        one.metrics().unwrap().remove(0),
                        "agent {agent}, round {round}"
                    );
                }
                assert!(learned(&together, agent) == learned(one, 0), "agent {agent}, round {round}");
            }
        }
    }
}
