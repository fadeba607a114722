//! Replay: its rows are steps, its memories and scores are the tracker's, and it forgets whole episodes.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Device, FLOOR, Row, draw, scorer, small_model};
use prudence_agent::replay::{Chosen, NewStep, Replay, ReplaySettings, Stored};
use prudence_agent::{AgentUnits, Scaling};
use prudence_core::random::StreamId;
use prudence_core::{BoxSpace, Spec};
use prudence_data::Episode;
use prudence_safety::SafetyModel;

fn scaling() -> Scaling {
    let action = BoxSpace { low: vec![-2.0], high: vec![4.0] };
    let spec = Spec { observation: BoxSpace::unbounded(2), action, signals: vec![], horizon: 50 };
    Scaling::new(&spec)
}

/// The first observation names episode and step, so that a row tells where it comes from.
fn named_episode(index: usize, steps: usize, terminated: bool) -> Episode {
    let name = |t: usize| (1000 * index + t) as f32;
    Episode {
        observations: (0..=steps).flat_map(|t| [name(t), (name(t) * 0.7).sin()]).collect(),
        actions: (0..steps).map(|t| 3.0 * (name(t) * 0.3).cos() + 1.0).collect(),
        rewards: (0..steps).map(|t| name(t) + 0.5).collect(),
        terminated,
        ..Episode::new(2, 1)
    }
}

fn safety_model(seed: u64, ensemble: usize) -> Arc<SafetyModel> {
    small_model(&[named_episode(0, 30, false), named_episode(1, 20, false)], seed, ensemble)
}

/// A replay buffer of `agents` agents that learn from these stored episodes.
fn replay(
    model: Option<&Arc<SafetyModel>>,
    history: bool,
    capacity: usize,
    stored: &[Episode],
    agents: usize,
) -> Replay<Device> {
    let scorer = model.map(scorer);
    let stored = Stored::new(&Device::new(), &scaling(), scorer.as_ref(), stored).unwrap();
    let settings = ReplaySettings { capacity, own_steps: 2000, horizon: 50, history };
    let all = || Chosen { replica: 0, episodes: (0..stored.lengths(0).len()).collect() };
    let chosen: Vec<Chosen> = (0..agents).map(|_| all()).collect();
    let mut replay = Replay::new(&Device::new(), &scaling(), Arc::new(stored), &settings, &chosen).unwrap();
    // So that networks see names without clipping them.
    let units = AgentUnits { observation: vec![[0.0, NAME_UNIT], [0.0, 1.0]], reward: [0.0, 0.5] };
    (0..agents).for_each(|agent| replay.set_units(agent, &units));
    replay
}

fn push(replay: &mut Replay<Device>, agent: usize, model: Option<&Arc<SafetyModel>>, episodes: &[Episode]) {
    replay.restore(agent, episodes, model.map(scorer).as_ref()).unwrap();
}

/// The inverse unit of the names in observations.
const NAME_UNIT: f32 = 1.0 / 16384.0;

/// Many draws of the only agent.
fn rows(replay: &Replay<Device>, n: usize) -> Vec<Row> {
    drawn(replay, 1, n).remove(0)
}

/// Many draws of each agent, with the names as they were given.
fn drawn(replay: &Replay<Device>, agents: usize, n: usize) -> Vec<Vec<Row>> {
    let mut drawn = draw(replay, agents, n, StreamId::new(4, "draws", 0));
    for row in drawn.iter_mut().flatten() {
        row.0[0] /= NAME_UNIT;
        row.4[0] /= NAME_UNIT;
    }
    drawn
}

/// The names of the steps drawn.
fn names(rows: &[Row]) -> BTreeSet<u32> {
    rows.iter().map(|row| row.0[0] as u32).collect()
}

#[test]
fn a_row_is_one_step_and_what_follows_is_the_next_row() {
    let episodes = [named_episode(1, 7, false), named_episode(2, 1, true), named_episode(3, 9, true)];
    for stored in 0..=3 {
        let mut replay = replay(None, false, 1000, &episodes[..stored], 1);
        push(&mut replay, 0, None, &episodes[stored..]);
        assert_eq!((replay.len(0), replay.own_episodes(0)), (17, 3 - stored));
        let rows = rows(&replay, 1000);
        let all: BTreeSet<u32> = (1000..1007).chain([2000]).chain(3000..3009).collect();
        assert_eq!(names(&rows), all, "every step and no other is drawn");
        for (state, action, reward, score, next, not_terminal) in rows {
            let name = state[0];
            assert_eq!(next, [name + 1.0, ((name + 1.0) * 0.7).sin()]);
            assert_eq!(reward, (name + 0.5) * 0.5, "scaled");
            assert!((action[0] - (name * 0.3).cos()).abs() < 1e-6, "in units of the policy");
            assert_eq!(score, 0.0);
            let terminal = name == 2000.0 || name == 3008.0;
            assert_eq!(not_terminal, if terminal { 0.0 } else { 1.0 }, "step {name}: the horizon is not terminal");
        }
    }
}

#[test]
fn a_step_can_be_drawn_as_soon_as_it_is_taken() {
    let mut replay = replay(None, false, 1000, &[], 1);
    push(&mut replay, 0, None, &[named_episode(1, 2, true)]);
    replay.start(0, &[5000.0, 0.0], None);
    assert_eq!(names(&rows(&replay, 100)), [1000, 1001].into());
    let step = NewStep { action: &[0.0], reward: 5000.5, terminated: false, next: &[5001.0, 0.0] };
    replay.step(&[Some(step)], None);
    assert_eq!(names(&rows(&replay, 100)), [1000, 1001, 5000].into());
    assert_eq!((replay.len(0), replay.own_episodes(0)), (3, 2));
}

#[test]
fn agents_draw_from_stored_episodes_and_their_own() {
    let mut replay = replay(None, false, 1000, &[named_episode(9, 4, true)], 3);
    push(&mut replay, 0, None, &[named_episode(1, 3, true), named_episode(2, 2, false)]);
    push(&mut replay, 2, None, &[named_episode(3, 5, false)]);
    let drawn = drawn(&replay, 3, 300);
    let own = [(1000..1003).chain(2000..2002).collect(), Vec::new(), (3000..3005).collect()];
    for (agent, own) in own.into_iter().enumerate() {
        let all: BTreeSet<u32> = own.into_iter().chain(9000..9004).collect();
        assert_eq!((names(&drawn[agent]), replay.len(agent)), (all.clone(), all.len()), "agent {agent}");
    }
}

#[test]
fn forgetting_keeps_whole_episodes_the_most_recent() {
    let (capacity, lengths): (_, Vec<usize>) = (100, (0..60).map(|i| 1 + i * 13 % 29).collect());
    let episode = |index: usize| named_episode(index, lengths[index], index.is_multiple_of(2));
    for (model, stored) in [(None, 0), (Some(safety_model(1, 1)), 0), (Some(safety_model(1, 1)), 5)] {
        let data: Vec<Episode> = (0..stored).map(episode).collect();
        let mut replay = replay(model.as_ref(), model.is_some(), capacity, &data, 1);
        let mut forgot = false;
        for index in stored..60 {
            push(&mut replay, 0, model.as_ref(), &[episode(index)]);
            assert!(replay.len(0) <= capacity);
            let drawn = rows(&replay, 3000);
            let oldest = *names(&drawn).first().unwrap() as usize / 1000;
            forgot |= oldest > 0;
            assert!(
                oldest < stored || replay.own_episodes(0) == index + 1 - oldest,
                "stored episodes are forgotten first"
            );
            let held = (oldest..=index).flat_map(|e| (0..lengths[e]).map(move |t| (1000 * e + t) as u32));
            assert_eq!(names(&drawn), held.collect(), "after episode {index}");
            assert_eq!(replay.len(0), lengths[oldest..=index].iter().sum::<usize>());
            let one_step = |row: &Row| row.4[0] == row.0[0] + 1.0 && row.2 == (row.0[0] + 0.5) * 0.5;
            assert!(drawn.iter().all(one_step));
            if let Some(model) = &model {
                assert_rows_carry_the_models_scores(&drawn, model);
            }
        }
        assert!(forgot);
    }
    let mut replay = replay(None, false, 10, &[], 1);
    push(&mut replay, 0, None, &[named_episode(0, 5, false), named_episode(1, 25, false)]);
    assert_eq!((replay.len(0), replay.own_episodes(0)), (25, 1), "an episode longer than the capacity is kept whole");
}

/// Memory and score before and at each step of an episode, by the tracker that acting uses.
fn tracked(model: &Arc<SafetyModel>, episode: &Episode) -> (Vec<Vec<f32>>, Vec<f32>) {
    let scorer = scorer(model);
    let mut tracker = scorer.tracker(1).unwrap();
    let (mut memory, mut scores) = (vec![tracker.memory.to_vec()], Vec::new());
    for (observation, action) in episode.observations.chunks_exact(2).zip(&episode.actions) {
        scorer.step(&mut tracker, &observation.into(), &[*action][..].into(), &[1.0][..].into());
        memory.push(tracker.memory.to_vec());
        scores.push(tracker.score[0]);
    }
    (memory, scores)
}

fn assert_rows_carry_the_models_scores(rows: &[Row], model: &Arc<SafetyModel>) {
    let mut known = BTreeMap::new();
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
    for ensemble in [1, 3] {
        let model = safety_model(1, ensemble);
        let width = 4 * ensemble + 1;
        let episodes = [named_episode(1, 40, false), named_episode(2, 13, true), named_episode(3, 25, false)];
        for stored in 0..=3 {
            let mut replay = replay(Some(&model), true, 1000, &episodes[..stored], 1);
            assert_eq!(replay.state_width(), 2 + width);
            push(&mut replay, 0, Some(&model), &episodes[stored..]);
            let rows = rows(&replay, 2000);
            assert_rows_carry_the_models_scores(&rows, &model);
            let (at_floor, above) = (rows.iter().any(|row| row.3 == 0.0), rows.iter().any(|row| row.3 < -0.05));
            assert!(at_floor && above, "the floor is reached");
            let last = |e: &Episode| tracked(&model, e).0[e.len()][width - 1] * FLOOR as f32;
            let sums: Vec<f32> = episodes[stored..].iter().map(last).collect();
            assert_eq!(replay.recent_sums(0, 3).len(), sums.len());
            for (ours, exact) in replay.recent_sums(0, 3).iter().zip(&sums) {
                assert!((ours - exact).abs() < 1e-6);
            }
            assert_eq!(replay.recent_sums(0, 2), replay.recent_sums(0, 100)[1_usize.saturating_sub(stored)..]);
        }
    }
}

#[test]
fn without_history_the_memory_is_hidden_and_the_score_is_not() {
    let (model, episode) = (safety_model(1, 1), named_episode(3, 20, false));
    let mut replay = replay(Some(&model), false, 1000, &[], 1);
    push(&mut replay, 0, Some(&model), std::slice::from_ref(&episode));
    assert_eq!(replay.state_width(), 2);
    let scores = tracked(&model, &episode).1;
    assert!(rows(&replay, 100).iter().all(|row| row.3 == scores[row.0[0] as usize % 1000] && row.0.len() == 2));
}

/// Every row carries the scores of the model it was filled or last scored with.
#[test]
fn no_row_keeps_the_score_of_another_model() {
    let (old, new) = (safety_model(1, 1), safety_model(2, 1));
    let (stored, own) = ([named_episode(1, 20, true)], [named_episode(2, 30, false), named_episode(3, 9, true)]);
    let filled = |model: &Arc<SafetyModel>| {
        let mut replay = replay(Some(model), true, 1000, &stored, 1);
        push(&mut replay, 0, Some(model), &own);
        replay
    };
    let [mut replay, exact] = [filled(&old), filled(&new)];
    let before = rows(&replay, 500);
    assert_rows_carry_the_models_scores(&before, &old);
    let scorer = scorer(&new);
    replay.score_stored_again(0, &scorer).unwrap();
    replay.score_own_again(0, &scorer, 0..2).unwrap();
    let after = rows(&replay, 500);
    assert_rows_carry_the_models_scores(&after, &new);
    assert_eq!((&after, replay.recent_sums(0, 9)), (&rows(&exact, 500), exact.recent_sums(0, 9)));
    let differ = before.iter().zip(&after).filter(|(a, b)| (a.3 - b.3).abs() > 1e-4 || a.4 != b.4).count();
    assert_eq!(differ, 500, "the same draws, other scores in every row");
}

/// The running episode, the last one, has no sum yet.
#[test]
fn recent_sums_are_of_completed_episodes_that_count() {
    let model = safety_model(1, 1);
    let mut replay = replay(Some(&model), true, 1000, &[], 1);
    let episodes: Vec<Episode> = (1..=7).map(|index| named_episode(index, 4 + index, false)).collect();
    push(&mut replay, 0, Some(&model), &episodes);
    let sums: Vec<f32> = episodes.iter().map(|episode| scorer(&model).score(&[episode]).unwrap()[0].sum).collect();
    assert_eq!(replay.completed_sums(0, 2), [sums[5], sums[4]]);
    assert_eq!(replay.completed_sums(0, 100).len(), 6);
    [1, 4, 5].into_iter().for_each(|episode| replay.set_counts(0, episode, false));
    assert_eq!(replay.completed_sums(0, 3), [sums[3], sums[2], sums[0]]);
}

/// The first part of each batch comes from the agent's own steps alone, the rest from the stored ones alone, each
/// uniformly; where there are only steps of one kind, all are drawn from these.
#[test]
fn a_share_of_each_batch_is_the_agents_own() {
    let (stored, own) = ([named_episode(1, 30, false)], [named_episode(2, 4, true), named_episode(3, 6, true)]);
    let drawn = |stored: &[Episode], own: &[Episode], share: f64| -> [BTreeSet<u32>; 2] {
        let mut replay = replay(None, false, 1000, stored, 1);
        push(&mut replay, 0, None, own);
        let mut rows = vec![0; 1000];
        let mut names = [BTreeSet::new(), BTreeSet::new()];
        replay.draw(0, &mut rows, share, StreamId::new(4, "draws", 0));
        let d = Device::new();
        let mut batch = prudence_nn::work::Batch::new(&d, 1, rows.len(), replay.state_width(), 1).unwrap();
        prudence_nn::Device::gather(&d, &replay.tables(), &rows, &mut batch);
        for (i, reward) in batch.reward.iter().enumerate() {
            names[usize::from(i >= 300)].insert((reward / 0.5) as u32); // the name of the step, plus one half
        }
        names
    };
    let of = |episodes: &[Episode]| -> BTreeSet<u32> {
        episodes.iter().flat_map(|e| e.rewards.iter().map(|reward| *reward as u32)).collect()
    };
    let both = of(&[&stored[..], &own].concat());
    assert_eq!(drawn(&stored, &own, 0.3), [of(&own), of(&stored)]);
    assert_eq!(drawn(&stored, &own, 0.0)[1], both);
    assert_eq!(drawn(&stored, &[], 0.3), [of(&stored), of(&stored)]);
    assert_eq!(drawn(&[], &own, 0.3), [of(&own), of(&own)]);
}
