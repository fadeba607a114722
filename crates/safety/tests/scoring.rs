//! Scoring: whole episodes, single steps and prefixes give the same bits, and log P reads the memory before its update.

mod common;

use common::*;
use prudence_data::Episode;
use prudence_nn::{Gru, Mlp};
use prudence_safety::{FitSettings, SafetyModel};

fn refs(episodes: &[Episode]) -> Vec<&Episode> {
    episodes.iter().collect()
}

/// A model whose decoder ignores (s, a): its score depends only on the memory.
fn model_that_reads_memory_alone() -> SafetyModel {
    let (inputs, hidden) = (OBSERVATION + ACTION, settings().hidden);
    let (encoder, gru) = (Mlp::new(inputs, &[10], 6), Gru { inputs: 6, hidden });
    let first_layer = encoder.parameters() + gru.parameters();
    changed(model(), &settings(), |parameters| {
        // The layout of weights is `[in, out]`: the first rows are those of (s, a).
        parameters[first_layer..][..inputs * settings().decoder[0]].fill(0.0);
    })
}

#[test]
fn whole_episodes_score_as_single_steps_do() {
    let episodes = episodes(70); // more than one batch
    let ensemble = FitSettings { ensemble: 3, ..settings() };
    let without_encoder = FitSettings { encoder: vec![], ..settings() };
    for model in [model(), model_with(&ensemble, 5), model_with(&without_encoder, 5)] {
        let scores = score(&model, &refs(&episodes));
        let all: Vec<f32> = scores.iter().flat_map(|s| s.log_prob.clone()).collect();
        let (low, high) = (all.iter().copied().fold(0.0, f32::min), all.iter().copied().fold(-9.0, f32::max));
        assert!(high - low > 0.5, "scores should differ more: {low} to {high}");
        for (scores, episode) in scores.iter().zip(&episodes) {
            assert_eq!(scores.log_prob.len(), episode.len());
            assert_eq!(scores.memory.len(), (episode.len() + 1) * model.memory_width());
            assert_same_bits(scores, &stepped(&scorer(&[&model]), &[episode])[0]);
        }
    }
}

#[test]
fn prefix_scores_equal_separate_passes() {
    let (model, episodes) = (model(), episodes(40));
    let long = episodes.iter().max_by_key(|e| e.len()).unwrap();
    let whole = &score(&model, &[long])[0];
    for steps in 1..=long.len() {
        let alone = &score(&model, &[&prefix(long, steps)])[0];
        assert_eq!(bits(&alone.log_prob), bits(&whole.log_prob[..steps]));
        assert_eq!(bits(&alone.score), bits(&whole.score[..steps]));
        assert_eq!(bits(&alone.memory), bits(&whole.memory[..(steps + 1) * model.memory_width()]));
    }
}

/// With a decoder that reads only the memory, (s_t, a_t) changes no score up to step t, but the score of step t + 1.
#[test]
fn the_score_at_t_reads_h_t_and_not_the_next() {
    let model = model_that_reads_memory_alone();
    let episode = &episodes(40)[25];
    let steps = episode.len();
    assert!(steps > 20);
    let one_pass = |e: &Episode| score(&model, &[e]).remove(0).log_prob;
    let steps_alone = |e: &Episode| stepped(&scorer(&[&model]), &[e]).remove(0).log_prob;
    for (way, score) in [("one pass", &one_pass as &dyn Fn(&Episode) -> Vec<f32>), ("steps", &steps_alone)] {
        let before = score(episode);
        for t in [0, 1, 9, steps - 2] {
            let mut changed = episode.clone();
            changed.actions[t * ACTION] += 1.5;
            changed.observations[t * OBSERVATION + 1] -= 1.5;
            let after = score(&changed);
            assert_eq!(before[..=t], after[..=t], "{way}: step {t} already affects the scores up to {t}");
            let difference = (before[t + 1] - after[t + 1]).abs();
            assert!(difference > 1e-3, "{way}: step {t} does not affect the score at {}", t + 1);
        }
    }
}

#[test]
fn every_episode_starts_without_a_memory() {
    let model = model_that_reads_memory_alone();
    let scores = score(&model, &refs(&episodes(30)));
    assert!(scores.iter().all(|s| s.log_prob[0] == scores[0].log_prob[0]));
    assert!(scores.iter().all(|s| s.memory[..model.memory_width()].iter().all(|x| *x == 0.0)));
    assert!(scores.iter().filter(|s| s.score.len() > 1).any(|s| (s.log_prob[1] - s.log_prob[0]).abs() > 1e-3));
}

#[test]
fn the_company_in_a_batch_does_not_change_scores() {
    let (model, episodes) = (model(), episodes(130));
    let all = refs(&episodes);
    let together = score(&model, &all);
    let backwards = score(&model, &all.iter().rev().copied().collect::<Vec<_>>());
    for (i, episode) in all.iter().enumerate() {
        assert_same_bits(&together[i], &score(&model, &[episode])[0]);
        assert_same_bits(&together[i], &backwards[all.len() - 1 - i]);
    }
    assert!(score(&model, &[]).is_empty());
}

#[test]
fn scores_add_up_to_the_floored_sum_that_agents_see() {
    let (model, episodes) = (model(), episodes(60));
    let width = model.memory_width();
    let mut floored = 0;
    for scores in score(&model, &refs(&episodes)) {
        let (mut total, mut exact) = (0.0f64, 0.0f64);
        for (t, (log_prob, score)) in scores.log_prob.iter().zip(&scores.score).enumerate() {
            exact = (exact + f64::from(*log_prob)).max(FLOOR);
            total += f64::from(*score);
            let used = f64::from(scores.memory[(t + 2) * width - 1]);
            assert!(log_prob - 1e-6 <= *score && *score <= 0.0, "{score} for {log_prob}");
            assert!((total - exact).abs() < 1e-5 && (used - exact / FLOOR).abs() < 1e-5);
            assert!((0.0..=1.0).contains(&used));
        }
        assert!(scores.sum >= FLOOR as f32 && (f64::from(scores.sum) - exact).abs() < 1e-5);
        floored += usize::from(scores.sum == FLOOR as f32);
    }
    assert!((1..60).contains(&floored), "{floored} of 60 episodes reach the floor");
}
