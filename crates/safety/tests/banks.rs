//! Banks of models, ensembles, trackers of several episodes, and the scoring of recalled states.

mod common;

use common::*;
use prudence_data::Episode;
use prudence_nn::Cpu;
use prudence_nn::cpu::Buffer;
use prudence_safety::{Error, FitSettings, SafetyModel, Scorer, Tracker};

fn ensemble(members: usize) -> FitSettings {
    FitSettings { ensemble: members, ..settings() }
}

/// Different models, one per replica, and `rows` episodes for each.
fn bank(replicas: usize, members: usize, rows: usize) -> (Vec<SafetyModel>, Vec<Episode>) {
    let models = (0..replicas).map(|r| model_with(&ensemble(members), 5 + r as u64)).collect();
    (models, episodes(replicas * rows))
}

fn refs<T>(all: &[T]) -> Vec<&T> {
    all.iter().collect()
}

#[test]
fn a_bank_gives_each_row_the_bits_that_its_model_gives_alone() {
    for (replicas, members, rows) in [(1, 1, 9), (1, 3, 5), (4, 1, 1), (3, 2, 4), (2, 3, 7)] {
        let (models, episodes) = bank(replicas, members, rows);
        let together = stepped(&scorer(&refs(&models)), &refs(&episodes));
        for (row, episode) in episodes.iter().enumerate() {
            let alone = &score(&models[row / rows], &[episode])[0];
            assert_same_bits(&together[row], alone);
            let other = &models[(row / rows + 1) % replicas];
            assert_eq!(replicas == 1, score(other, &[episode])[0] == *alone, "another model should give other scores");
        }
    }
}

#[test]
fn an_ensembles_log_prob_is_its_members_minimum_and_its_memory_all_of_theirs() {
    let (settings, episodes) = (ensemble(3), episodes(30));
    let model = model_with(&settings, 5);
    let whole = score(&model, &refs(&episodes));
    let members: Vec<_> = members(&model, &settings).iter().map(|member| score(member, &refs(&episodes))).collect();
    assert_eq!((model.members(), members.len(), model.memory_width()), (3, 3, 22));
    let mut least = [0; 3];
    for (i, whole) in whole.iter().enumerate() {
        for (t, log_prob) in whole.log_prob.iter().enumerate() {
            let of_members: Vec<f32> = members.iter().map(|member| member[i].log_prob[t]).collect();
            assert_eq!(*log_prob, of_members.iter().copied().fold(f32::INFINITY, f32::min), "episode {i}, step {t}");
            least[of_members.iter().position(|x| x == log_prob).unwrap()] += 1;
        }
        for (t, memory) in whole.memory.chunks_exact(22).enumerate() {
            let of_members: Vec<f32> =
                members.iter().flat_map(|member| member[i].memory[8 * t..][..7].to_vec()).collect();
            assert_eq!(bits(&memory[..21]), bits(&of_members), "episode {i}, before step {t}");
        }
    }
    assert!(least.iter().filter(|n| **n > 0).count() > 1, "one member is always the minimum: {least:?}");
}

#[test]
fn a_bank_takes_models_of_one_shape_alone() {
    let (small, large) = (model_with(&FitSettings { hidden: 4, ..settings() }, 5), model());
    let refused = |models: &[&SafetyModel]| {
        let models: Vec<_> = models.iter().map(|model| std::sync::Arc::new((*model).clone())).collect();
        matches!(Scorer::new(&CPU, &models, FLOOR), Err(Error::Data(_)))
    };
    assert!(!refused(&[&large, &large]));
    assert!(refused(&[&small, &large]) && refused(&[&large, &model_with(&ensemble(2), 5)]) && refused(&[]));
}

/// Scores eight steps of the rows' episodes from step `from` on. Returns log P, score, sum and memory after each step.
fn go_on(
    scorer: &Scorer<Cpu<f32>>,
    tracker: &mut Tracker<Cpu<f32>>,
    episodes: &[&Episode],
    from: usize,
) -> Vec<Vec<u32>> {
    let active = Buffer::from(&vec![1.0; episodes.len()][..]);
    let one = |t: usize| {
        let [observation, action] = rows_at(episodes, t);
        scorer.step(tracker, &observation, &action, &active);
        bits(&[&tracker.log_prob[..], &tracker.score, &tracker.sum, &tracker.memory].concat())
    };
    (from..from + 8).map(one).collect()
}

#[test]
fn a_reset_row_is_as_new_and_leaves_the_others_alone() {
    let (models, _) = bank(2, 3, 3);
    let (scorer, episodes) = (scorer(&refs(&models)), episodes(40));
    let long: Vec<&Episode> = episodes.iter().filter(|e| e.len() > 20).collect();
    let (before, after) = (&long[..6], &long[6..12]);
    let mut used = scorer.tracker(6).unwrap();
    go_on(&scorer, &mut used, before, 0);
    assert!(used.sum.iter().all(|sum| *sum < 0.0) && used.memory.iter().all(|x| *x != 0.0));
    let (sum, memory) = (bits(&used.sum), bits(&used.memory));
    let width = scorer.memory_width();
    for row in 0..6 {
        scorer.reset(&mut used, row);
        assert!(used.sum[row] == 0.0 && used.memory[row * width..][..width].iter().all(|x| *x == 0.0));
        assert_eq!(bits(&used.sum[row + 1..]), sum[row + 1..], "row {row}");
        assert_eq!(bits(&used.memory[(row + 1) * width..]), memory[(row + 1) * width..], "row {row}");
    }
    let mut fresh = scorer.tracker(6).unwrap();
    assert_eq!(go_on(&scorer, &mut used, after, 0), go_on(&scorer, &mut fresh, after, 0));
}

#[test]
fn a_row_continues_exactly_where_a_scored_episode_stands() {
    for (replicas, members, rows) in [(1, 1, 4), (1, 3, 2), (2, 2, 2)] {
        let (models, _) = bank(replicas, members, rows);
        let (scorer, all) = (scorer(&refs(&models)), episodes(40));
        let long: Vec<&Episode> = all.iter().filter(|e| e.len() > 20).take(replicas * rows).collect();
        let mut uninterrupted = scorer.tracker(long.len()).unwrap();
        go_on(&scorer, &mut uninterrupted, &long, 0);
        let mut continued = scorer.tracker(long.len()).unwrap();
        go_on(&scorer, &mut continued, &long, 12); // some other history
        for (row, episode) in long.iter().enumerate() {
            let scores = &score(&models[row / rows], &[&prefix(episode, 8)])[0];
            scorer.continue_from(&mut continued, row, scores);
        }
        assert_eq!(bits(&continued.sum), bits(&uninterrupted.sum));
        assert_eq!(bits(&continued.memory), bits(&uninterrupted.memory));
        assert_eq!(go_on(&scorer, &mut continued, &long, 8), go_on(&scorer, &mut uninterrupted, &long, 8));

        let empty = prudence_safety::EpisodeScores::default();
        scorer.continue_from(&mut continued, 0, &empty);
        assert_eq!(continued.sum[0], 0.0, "an episode without steps should be at its start");
    }
}

#[test]
fn a_step_leaves_sum_and_score_of_inactive_rows_as_they_were() {
    let (scorer, episodes) = (scorer(&[&model()]), episodes(40));
    let long: Vec<&Episode> = episodes.iter().filter(|e| e.len() > 20).take(2).collect();
    let mut tracker = scorer.tracker(2).unwrap();
    go_on(&scorer, &mut tracker, &long, 0);
    let (sum, score) = (tracker.sum.to_vec(), tracker.score.to_vec());
    let [observation, action] = rows_at(&long, 8);
    scorer.step(&mut tracker, &observation, &action, &Buffer::from(&[1.0, 0.0][..]));
    assert_eq!((tracker.sum[1], tracker.score[1]), (sum[1], score[1]));
    assert_ne!((tracker.sum[0], tracker.score[0]), (sum[0], score[0]));
}
