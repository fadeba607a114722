//! What the learner, the multiplier and the replay promise, each alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use prudence_agent::multiplier::Multiplier;
use prudence_agent::replay::{Recent, Replay};
use prudence_agent::safesac::{Batch, Dimensions, Learner};
use prudence_agent::settings::{AgentSettings, Constraint, MultiplierSettings};
use prudence_agent::{Algorithm, Scaling};
use prudence_data::Episode;
use prudence_core::random::stream;
use prudence_env::{BoxSpace, Spec};
use prudence_nn::{MlpWork, Scalar, gaussian};
use prudence_safety::fit::initial_model;
use prudence_safety::{FitSettings, SafetyModel};

const BATCH: usize = 16;

fn dimensions(population: usize, safety: bool) -> Dimensions {
    Dimensions { state: 5, action: 2, population, safety }
}

fn settings() -> AgentSettings {
    AgentSettings { hidden: vec![24, 16], batch: BATCH, temperature: 0.2, ..AgentSettings::default() }
}

/// A batch of random transitions, a third of them the task's end.
fn random_batch<T: Scalar>(d: Dimensions, seed: u64) -> Batch<T> {
    let mut rng = stream(seed, "test-batch", 0);
    let mut batch = Batch::new(d, BATCH);
    let mut fill = |x: &mut [T], low: f64, high: f64| x.fill_with(|| T::of(rng.random_range(low..high)));
    fill(&mut batch.state, -1.5, 1.5);
    fill(&mut batch.next_state, -1.5, 1.5);
    fill(&mut batch.action, -1.0, 1.0);
    fill(&mut batch.reward, -1.0, 1.0);
    fill(&mut batch.score, -0.5, 0.0);
    fill(&mut batch.goes_on, -1.0, 2.0);
    batch.goes_on.iter_mut().for_each(|g| *g = if *g > T::ZERO { T::ONE } else { T::ZERO });
    batch.draw_noise(&mut stream(seed, "test-noise", 0));
    batch
}

/// Means of min Q_R, min Q_psi and log pi at the actions a policy draws at the batch's states, written out once more.
fn values(learner: &Learner<f64>, policy: &[f64], batch: &Batch<f64>) -> [f64; 3] {
    let d = learner.dimensions();
    let (policy_shape, critic_shape) = learner.shapes();
    let mut work = MlpWork::new(policy_shape, 1, BATCH);
    policy_shape.forward(policy, &batch.state, 1, &mut work);
    let (mut actions, mut log_prob) = (vec![0.0; BATCH * d.action], vec![0.0; BATCH]);
    gaussian::sample(work.output(), &batch.noise[1], settings().log_std(), &mut actions, &mut log_prob);
    let rows = batch.state.chunks_exact(d.state).zip(actions.chunks_exact(d.action));
    let input: Vec<f64> = rows.flat_map(|(s, a)| [s, a].concat()).collect();
    let n = critic_shape.parameters();
    let q: Vec<Vec<f64>> = (0..d.critics())
        .map(|i| {
            let mut work = MlpWork::new(critic_shape, 1, BATCH);
            critic_shape.forward(&learner.critics[i * n..][..n], &input, 1, &mut work);
            work.output().to_vec()
        })
        .collect();
    let mean_min = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.min(*b)).sum::<f64>() / BATCH as f64;
    let safety = if d.safety { mean_min(&q[2], &q[3]) } else { 0.0 };
    [mean_min(&q[0], &q[1]), safety, log_prob.iter().sum::<f64>() / BATCH as f64]
}

/// The step is taken on the critics as they are after their own step, so those are the frozen ones to measure with.
#[test]
fn policy_gradient_points_up() {
    for (safety, multiplier) in [(false, 0.0), (true, 0.0), (true, 0.5), (true, 30.0)] {
        for seed in 0..10 {
            let d = dimensions(1, safety);
            let mut learner = Learner::<f64>::new(d, &settings(), &mut stream(seed, "networks", 0));
            let batch = random_batch(d, seed);
            let (before, temperature) = (learner.policy.clone(), learner.temperature());
            learner.update(&batch, &[multiplier], 1e-5);
            let objective = |policy: &[f64]| {
                let [q_reward, q_safety, log_prob] = values(&learner, policy, &batch);
                q_reward + multiplier * q_safety - temperature * log_prob
            };
            let (before, after) = (objective(&before), objective(&learner.policy));
            assert!(after > before, "multiplier {multiplier}, seed {seed}: {before} to {after}");
        }
    }
}

#[test]
fn a_large_multiplier_makes_the_policy_climb_the_safety_critic() {
    for seed in 0..10 {
        let d = dimensions(1, true);
        let mut learner = Learner::<f64>::new(d, &settings(), &mut stream(seed, "networks", 0));
        let batch = random_batch(d, seed);
        let before = learner.policy.clone();
        learner.update(&batch, &[1e6], 1e-5);
        let [of_before, of_after] = [&before, &learner.policy].map(|policy| values(&learner, policy, &batch)[1]);
        assert!(of_after > of_before, "seed {seed}: {of_before} to {of_after}");
    }
}

/// A learner whose critics say 0 and whose target critics say `value`, everywhere; alpha is 0.
fn plain_learner(value: f64) -> Learner<f64> {
    let mut learner = Learner::<f64>::new(dimensions(1, true), &settings(), &mut stream(1, "networks", 0));
    learner.critics.fill(0.0);
    learner.target_critics.fill(0.0);
    let n = learner.shapes().1.parameters();
    learner.target_critics.chunks_exact_mut(n).for_each(|critic| critic[n - 1] = value);
    learner.log_temperature.fill(-700.0);
    learner
}

/// Critics that say 0 have the targets' squares as their loss.
#[test]
fn terminal_transitions_do_not_bootstrap_and_truncated_ones_do() {
    let value = -3.0;
    for goes_on in [0.0, 1.0] {
        let mut batch = random_batch::<f64>(dimensions(1, true), 5);
        batch.goes_on.fill(goes_on);
        let metrics = plain_learner(value).update(&batch, &[0.0], 1e-3);
        let beyond = settings().discount * goes_on * value;
        let both = |y: &[f64]| 2.0 * y.iter().map(|y| (y + beyond).powi(2)).sum::<f64>() / BATCH as f64;
        assert!((metrics.reward_critic_loss - both(&batch.reward)).abs() < 1e-12, "goes_on {goes_on}: {metrics:?}");
        assert!((metrics.safety_critic_loss - both(&batch.score)).abs() < 1e-12, "goes_on {goes_on}: {metrics:?}");
    }
}

#[test]
fn what_follows_the_tasks_end_changes_nothing() {
    let mut batch = random_batch::<f64>(dimensions(1, true), 6);
    batch.goes_on.fill(0.0);
    batch.goes_on[3] = 1.0;
    let critics = |batch: &Batch<f64>| {
        let mut learner = Learner::<f64>::new(dimensions(1, true), &settings(), &mut stream(2, "networks", 0));
        learner.update(batch, &[0.3], 1e-2);
        learner.critics
    };
    let before = critics(&batch);
    for (row, same) in [(2, true), (3, false)] {
        let mut other = batch.clone();
        other.next_state[row * 5..][..5].fill(1.25);
        assert_eq!(critics(&other) == before, same, "row {row}");
    }
}

#[test]
fn safety_targets_stay_between_the_floor_and_zero() {
    let floor = settings().score_floor;
    for (value, target) in [(-50.0, floor), (50.0, 0.0)] {
        let mut batch = random_batch::<f64>(dimensions(1, true), 7);
        batch.goes_on.fill(1.0);
        let metrics = plain_learner(value).update(&batch, &[0.0], 1e-3);
        assert!((metrics.safety_critic_loss - 2.0 * target * target).abs() < 1e-12, "{value}: {metrics:?}");
    }
}

/// Agents of a population share nothing: each has the bits it has alone.
#[test]
fn population_members_have_the_bits_they_have_alone() {
    for safety in [true, false] {
        let d = dimensions(3, safety);
        let mut together = Learner::<f32>::new(d, &settings(), &mut stream(3, "networks", 0));
        together.log_temperature.copy_from_slice(&[-1.0, -2.0, -0.5]);
        let multipliers = [0.0, 0.7, 20.0];
        let part = |x: &[f32], p: usize| x[p * x.len() / 3..(p + 1) * x.len() / 3].to_vec();
        let mut alone: Vec<Learner<f32>> = (0..3)
            .map(|p| {
                let mut one = Learner::new(dimensions(1, safety), &settings(), &mut stream(9, "networks", p as u64));
                one.policy = part(&together.policy, p);
                one.averaged_policy = part(&together.averaged_policy, p);
                one.critics = part(&together.critics, p);
                one.target_critics = part(&together.target_critics, p);
                one.log_temperature = part(&together.log_temperature, p);
                one
            })
            .collect();
        for update in 0..5 {
            let batch = random_batch::<f32>(d, update);
            let metrics = together.update(&batch, &multipliers, 3e-3);
            let mut losses = 0.0;
            for (p, one) in alone.iter_mut().enumerate() {
                let own = Batch {
                    state: part(&batch.state, p),
                    action: part(&batch.action, p),
                    reward: part(&batch.reward, p),
                    score: part(&batch.score, p),
                    next_state: part(&batch.next_state, p),
                    goes_on: part(&batch.goes_on, p),
                    noise: [part(&batch.noise[0], p), part(&batch.noise[1], p)],
                };
                losses += one.update(&own, &multipliers[p..=p], 3e-3).reward_critic_loss;
                for (together, alone) in [
                    (&together.policy, &one.policy),
                    (&together.averaged_policy, &one.averaged_policy),
                    (&together.critics, &one.critics),
                    (&together.target_critics, &one.target_critics),
                    (&together.log_temperature, &one.log_temperature),
                ] {
                    assert!(part(together, p) == *alone, "agent {p} after update {update}");
                }
            }
            assert!((metrics.reward_critic_loss - losses / 3.0).abs() < 1e-6 * losses);
        }
    }
}

fn multiplier_settings() -> MultiplierSettings {
    MultiplierSettings { initial: 1.0, freeze: 0, learning_rate: 0.05, max: 3.0, ..MultiplierSettings::default() }
}

const CONSTRAINTS: [Constraint; 2] = [Constraint::LowerBound, Constraint::Original];

#[test]
fn the_multiplier_rises_while_the_constraint_is_missed_and_falls_while_it_is_kept() {
    let settings = multiplier_settings();
    for constraint in CONSTRAINTS {
        let threshold = Multiplier::threshold(constraint, &settings);
        for (margin, up) in [(-0.3, true), (-1e-4, true), (0.04, false), (1e-4, false)] {
            let mut multiplier = Multiplier::new(&settings);
            for _ in 0..10 {
                let before = multiplier.value();
                multiplier.update(threshold + margin, threshold, &settings);
                assert_eq!(multiplier.value() > before, up, "{constraint:?}, margin {margin}");
            }
        }
    }
}

#[test]
fn every_constrained_algorithm_has_its_own_threshold() {
    let settings = MultiplierSettings { target: 0.9, ..MultiplierSettings::default() };
    let threshold = |a: Algorithm| a.constraint().map(|c| Multiplier::threshold(c, &settings));
    assert_eq!(
        Algorithm::ALL.map(threshold),
        [None, Some(0.9f64.ln()), Some(0.9f64.ln()), Some(0.9)] // sac, safesac-h, safesac-noh, safesac-nonlb
    );
}

/// However long the constraint was missed, the multiplier leaves its limit equally soon.
#[test]
fn wind_up_is_bounded() {
    let settings = multiplier_settings();
    let moves_to_leave = |missed: usize| {
        let mut multiplier = Multiplier::new(&settings);
        let threshold = Multiplier::threshold(Constraint::LowerBound, &settings);
        (0..missed).for_each(|_| multiplier.update(-7.0, threshold, &settings));
        assert_eq!(multiplier.value(), settings.max);
        assert!(multiplier.at_limit(&settings));
        (1..1000).find(|_| {
            multiplier.update(0.0, threshold, &settings);
            multiplier.value() < settings.max
        })
    };
    let soon = moves_to_leave(100).unwrap();
    assert!(soon < 60, "{soon} moves");
    assert!(moves_to_leave(10_000).unwrap() <= soon + 1);
}

#[test]
fn a_frozen_or_fixed_multiplier_does_not_move() {
    let frozen = MultiplierSettings { freeze: 4, ..multiplier_settings() };
    let mut multiplier = Multiplier::new(&frozen);
    let moved: Vec<bool> = (0..6)
        .map(|_| {
            multiplier.update(-1.0, 0.0, &frozen);
            multiplier.value() != 1.0
        })
        .collect();
    assert_eq!(moved, [false, false, false, false, true, true]);
    let fixed = MultiplierSettings { fixed: Some(2.5), ..multiplier_settings() };
    let mut multiplier = Multiplier::new(&fixed);
    (0..10).for_each(|_| multiplier.update(-1.0, 0.0, &fixed));
    assert_eq!(multiplier.value(), 2.5);
    assert!(!multiplier.at_limit(&fixed));
}

proptest! {
    #[test]
    fn the_multiplier_stays_within_its_limits(
        estimates in prop::collection::vec(prop_oneof![-7.0..0.0f64, Just(f64::NAN), Just(f64::NEG_INFINITY), -0.1..0.0f64], 1..300),
        rate in 1e-3..10.0f64,
    ) {
        let settings = MultiplierSettings { learning_rate: rate, ..multiplier_settings() };
        let mut multiplier = Multiplier::new(&settings);
        for estimate in estimates {
            multiplier.update(estimate, settings.target.ln(), &settings);
            prop_assert!((0.0..=settings.max).contains(&multiplier.value()));
        }
    }
}

const FLOOR: f64 = -2.0;

fn scaling() -> Scaling {
    let unbounded = BoxSpace { low: vec![f64::NEG_INFINITY; 2], high: vec![f64::INFINITY; 2] };
    let action = BoxSpace { low: vec![-2.0], high: vec![4.0] };
    Scaling::new(&Spec { observation: unbounded, action, signals: vec![], horizon: 50 })
}

/// The first observation names episode and step, so that a row tells where it comes from.
fn named_episode(index: usize, steps: usize, terminated: bool) -> Episode {
    let name = |t: usize| (1000 * index + t) as f32;
    Episode {
        observations: (0..=steps).flat_map(|t| [name(t), (name(t) * 0.7).sin()]).collect(),
        actions: (0..steps).map(|t| 3.0 * (name(t) * 0.3).cos() + 1.0).collect(),
        rewards: (0..steps).map(|t| name(t) + 0.5).collect(),
        signals: vec![],
        terminated,
    }
}

fn safety_model(seed: u64) -> Arc<SafetyModel> {
    let data = [named_episode(0, 30, false), named_episode(1, 20, false)];
    let settings = FitSettings { encoder: vec![6, 3], hidden: 4, decoder: vec![8], ..FitSettings::default() };
    Arc::new(initial_model(&data.iter().collect::<Vec<_>>(), 2, 1, 0, &settings, seed))
}

/// Many draws: one row each, as (state, action, reward, score, next state, goes on).
type Row = (Vec<f32>, f32, f32, f32, Vec<f32>, f32);

fn draw(replay: &Replay, n: usize) -> Vec<Row> {
    let d = Dimensions { state: replay.state_width(), action: 1, population: 1, safety: true };
    let mut batch = Batch::new(d, n);
    replay.sample(&mut batch, &mut stream(4, "draws", 0));
    let Batch { state, action, reward, score, next_state, goes_on, .. } = batch;
    let state_of = |x: &[f32], i: usize| x[i * d.state..][..d.state].to_vec();
    (0..n)
        .map(|i| (state_of(&state, i), action[i], reward[i], score[i], state_of(&next_state, i), goes_on[i]))
        .collect()
}

/// The names of the steps drawn.
fn names(rows: &[Row]) -> BTreeSet<u32> {
    rows.iter().map(|row| row.0[0] as u32).collect()
}

#[test]
fn a_row_is_one_step_and_what_follows_is_the_next_row() {
    let mut replay = Replay::new(scaling(), None, false, FLOOR, 0.5, 1000);
    let episodes = [named_episode(1, 7, false), named_episode(2, 1, true), named_episode(3, 9, true)];
    episodes.iter().for_each(|e| replay.push(e));
    assert_eq!((replay.len(), replay.episodes()), (17, 3));
    let rows = draw(&replay, 1000);
    let all: BTreeSet<u32> = (1000..1007).chain([2000]).chain(3000..3009).collect();
    assert_eq!(names(&rows), all, "every step and no other is drawn");
    for (state, action, reward, score, next, goes_on) in rows {
        let name = state[0];
        assert_eq!(next, [name + 1.0, ((name + 1.0) * 0.7).sin()]);
        assert_eq!(reward, (name + 0.5) * 0.5, "scaled");
        assert!((action - (name * 0.3).cos()).abs() < 1e-6, "in units of the policy");
        assert_eq!(score, 0.0);
        let ended = name == 2000.0 || name == 3008.0;
        assert_eq!(goes_on, if ended { 0.0 } else { 1.0 }, "step {name}: the horizon is no end");
    }
}

#[test]
fn a_step_can_be_drawn_as_soon_as_it_is_taken() {
    let mut replay = Replay::new(scaling(), None, false, FLOOR, 1.0, 1000);
    replay.push(&named_episode(1, 2, true));
    replay.start(&[5000.0, 0.0]);
    assert_eq!(names(&draw(&replay, 100)), [1000, 1001].into());
    replay.step(&[0.0], 5000.5, false, &[5001.0, 0.0]);
    assert_eq!(names(&draw(&replay, 100)), [1000, 1001, 5000].into());
    assert_eq!((replay.len(), replay.episodes()), (3, 2));
}

#[test]
fn forgetting_keeps_whole_episodes_the_most_recent() {
    let capacity = 100;
    for safety in [None, Some(safety_model(1))] {
        let mut replay = Replay::new(scaling(), safety.clone(), safety.is_some(), FLOOR, 1.0, capacity);
        let lengths: Vec<usize> = (0..60).map(|i| 1 + i * 13 % 29).collect();
        let mut forgot = false;
        for (index, steps) in lengths.iter().enumerate() {
            replay.push(&named_episode(index, *steps, index % 2 == 0));
            assert!(replay.len() <= capacity);
            let oldest = index + 1 - replay.episodes();
            forgot |= oldest > 0;
            let held = (oldest..=index).flat_map(|e| (0..lengths[e]).map(move |t| (1000 * e + t) as u32));
            let rows = draw(&replay, 3000);
            assert_eq!(names(&rows), held.collect(), "after episode {index}");
            assert!(
                rows.iter()
                    .all(|(state, _, reward, _, next, _)| next[0] == state[0] + 1.0 && *reward == state[0] + 0.5)
            );
            if let Some(model) = &safety {
                assert_rows_carry_the_models_opinion(&rows, model);
            }
        }
        assert!(forgot);
    }
    let mut replay = Replay::new(scaling(), None, false, FLOOR, 1.0, 10);
    replay.push(&named_episode(0, 5, false));
    replay.push(&named_episode(1, 25, false));
    assert_eq!((replay.len(), replay.episodes()), (25, 1), "an episode longer than the capacity is kept whole");
}

/// Memory and score before and at each step of an episode, by the tracker that acting uses.
fn tracked(model: &SafetyModel, episode: &Episode) -> (Vec<Vec<f32>>, Vec<f32>) {
    let mut tracker = model.tracker(FLOOR);
    let (mut memory, mut scores) = (Vec::new(), Vec::new());
    for t in 0..=episode.len() {
        let mut row = vec![0.0; model.memory()];
        tracker.write_memory(&mut row);
        memory.push(row);
        if t < episode.len() {
            let log_prob = model.step(&mut tracker, &episode.observations[2 * t..][..2], &episode.actions[t..=t]);
            scores.push(tracker.score(log_prob));
        }
    }
    (memory, scores)
}

fn assert_rows_carry_the_models_opinion(rows: &[Row], model: &SafetyModel) {
    let mut known = std::collections::BTreeMap::new();
    for (state, _, _, score, next, _) in rows {
        let (index, t) = (state[0] as usize / 1000, state[0] as usize % 1000);
        // An episode's length does not change what was before: any long enough one will do.
        let (memory, scores) = known.entry(index).or_insert_with(|| tracked(model, &named_episode(index, 60, false)));
        assert_eq!(state[2..], memory[t], "memory at step {t} of episode {index}");
        assert_eq!(next[2..], memory[t + 1], "memory after step {t} of episode {index}");
        assert_eq!(*score, scores[t], "score of step {t} of episode {index}");
    }
}

#[test]
fn memory_and_scores_are_the_trackers() {
    let model = safety_model(1);
    let mut replay = Replay::new(scaling(), Some(model.clone()), true, FLOOR, 1.0, 1000);
    assert_eq!(replay.state_width(), 2 + 5);
    let episodes = [named_episode(1, 40, false), named_episode(2, 13, true), named_episode(3, 25, false)];
    episodes.iter().for_each(|e| replay.push(e));
    let rows = draw(&replay, 2000);
    assert_rows_carry_the_models_opinion(&rows, &model);
    assert!(rows.iter().any(|row| row.3 == 0.0) && rows.iter().any(|row| row.3 < -0.05), "the floor is reached");
    let sums: Vec<f32> = episodes.iter().map(|e| tracked(&model, e).0[e.len()][4] * FLOOR as f32).collect();
    for (ours, exact) in replay.recent_sums(3).iter().zip(&sums) {
        assert!((ours - exact).abs() < 1e-6);
    }
    assert_eq!(replay.recent_sums(2), &replay.recent_sums(100)[1..]);
}

#[test]
fn without_history_the_memory_is_hidden_and_the_score_is_not() {
    let model = safety_model(1);
    let mut replay = Replay::new(scaling(), Some(model.clone()), false, FLOOR, 1.0, 1000);
    let episode = named_episode(3, 20, false);
    replay.push(&episode);
    assert_eq!(replay.state_width(), 2);
    let scores = tracked(&model, &episode).1;
    assert!(draw(&replay, 100).iter().all(|row| row.3 == scores[row.0[0] as usize % 1000] && row.0.len() == 2));
}

/// A replay has one model for life: the same episode pushed under another one carries that one's opinion.
#[test]
fn a_stale_safety_model_cannot_enter() {
    let (old, new) = (safety_model(1), safety_model(2));
    let rows = [&old, &new].map(|model| {
        let mut replay = Replay::new(scaling(), Some(model.clone()), true, FLOOR, 1.0, 1000);
        replay.push(&named_episode(2, 30, false));
        let rows = draw(&replay, 500);
        assert_rows_carry_the_models_opinion(&rows, model);
        rows
    });
    let differ = rows[0].iter().zip(&rows[1]).filter(|(a, b)| (a.3 - b.3).abs() > 1e-4 || a.4 != b.4).count();
    assert_eq!(differ, 500, "the same draws, another opinion in every row");
}

#[test]
fn recent_rows_come_from_the_window_alone() {
    let model = safety_model(1);
    let mut replay = Replay::new(scaling(), Some(model.clone()), true, FLOOR, 1.0, 1000);
    for index in 1..=6 {
        replay.push(&named_episode(index, 4 + index, false));
    }
    let mut recent = Recent::default();
    for window in [1, 2, 6, 50] {
        replay.sample_recent(window, 2000, &mut stream(5, "recent", 0), &mut recent);
        let drawn: BTreeSet<u32> = recent.observations.chunks_exact(2).map(|o| o[0] as u32).collect();
        let first = 7 - window.min(6);
        let expected = (first..=6).flat_map(|e| (0..4 + e).map(move |t| (1000 * e + t) as u32));
        assert_eq!(drawn, expected.collect(), "window {window}");
        for ((observation, memory), state) in
            recent.observations.chunks_exact(2).zip(recent.memory.chunks_exact(5)).zip(recent.states.chunks_exact(7))
        {
            assert_eq!(state, [observation, memory].concat());
            let (index, t) = (observation[0] as usize / 1000, observation[0] as usize % 1000);
            assert_eq!(memory, tracked(&model, &named_episode(index, 4 + index, false)).0[t]);
        }
    }
}
