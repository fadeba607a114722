//! Navigation: the dynamics, zones, reward and walls of the RDDL text, tested against geometry written by hand.

mod plane;

use plane::{DISC_CENTRE, DISC_RADIUS, DISTANCE, GOAL, IN_DANGER, START, build, distance, in_danger};
use proptest::collection::vec;
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use prudence_env::conformance::{self, Chance};
use prudence_env::rddl::Rddl;
use prudence_env::{Env, Error, Settable as _, Snapshots as _};
use serde_json::json;

fn still_at(x: f64, y: f64) -> Rddl {
    let mut env = build(false, 20);
    let mut observation = [0.0; 2];
    env.reset(0, &mut observation).unwrap();
    env.set_state(&json!({ "location___x": x, "location___y": y }), &mut observation).unwrap();
    env
}

#[test]
fn keeps_every_promise() {
    for horizon in [1, 2, 20, 300] {
        conformance::check(&|| Box::new(build(true, horizon)), Chance::Steps).unwrap();
        conformance::check(&|| Box::new(build(false, horizon)), Chance::Nothing).unwrap();
    }
}

/// The generator produces words in blocks; a snapshot must work at any position in a block.
#[test]
fn snapshots_work_at_every_step_of_a_long_episode() {
    let mut env = build(true, 400);
    let mut observation = [0.0; 2];
    env.reset(1, &mut observation).unwrap();
    for _ in 0..399 {
        let snapshot = env.snapshot();
        let mut other = build(true, 400);
        let mut seen = [0.0; 2];
        other.restore(&snapshot, &mut seen).unwrap();
        assert_eq!(seen, observation);
        env.step(&[0.7, -0.4], &mut observation).unwrap();
        other.step(&[0.7, -0.4], &mut seen).unwrap();
        assert_eq!(seen, observation);
    }
}

/// The error of a move of size m is Normal(0, 0.05 m), independently in each dimension: z-tests of the mean, the
/// variance and the correlation between the dimensions, with five standard errors each.
#[test]
fn noise_has_the_stated_mean_and_variance() {
    let (n, centre) = (40_000, [5.0, 5.0]);
    for by in [[1.0, 0.25], [-0.5, 1.0], [0.04, -1.0]] {
        let mut env = build(true, 1);
        let mut at = [0.0; 2];
        let (mut sum, mut squares, mut product) = ([0.0; 2], [0.0; 2], 0.0);
        for seed in 0..n {
            env.reset(seed, &mut at).unwrap();
            env.set_state(&json!({ "location___x": centre[0], "location___y": centre[1] }), &mut at).unwrap();
            env.step(&by, &mut at).unwrap();
            let z = [0, 1].map(|d| (at[d] - centre[d] - by[d]) / (0.05 * f64::abs(by[d])).sqrt());
            for d in [0, 1] {
                sum[d] += z[d];
                squares[d] += z[d] * z[d];
            }
            product += z[0] * z[1];
        }
        let n = n as f64;
        for d in [0, 1] {
            let (mean, variance) = (sum[d] / n, squares[d] / n);
            assert!(mean.abs() < 5.0 / n.sqrt(), "move {by:?}, dimension {d}: mean {mean} standard deviations off");
            assert!(
                (variance - 1.0).abs() < 5.0 * (2.0 / n).sqrt(),
                "move {by:?}, dimension {d}: variance x {variance}"
            );
        }
        assert!((product / n).abs() < 5.0 / n.sqrt(), "move {by:?}: the dimensions correlate by {}", product / n);
    }
}

/// Setting a state does not restart the random draws of an episode, and successive draws are uncorrelated.
#[test]
fn noise_within_an_episode_is_uncorrelated() {
    let n = 40_000;
    let (mut env, mut at) = (build(true, 1), [0.0; 2]);
    env.reset(3, &mut at).unwrap();
    let (mut last, mut sum) = (0.0, 0.0);
    for _ in 0..n {
        env.set_state(&json!({ "location___x": 5, "location___y": 1 }), &mut at).unwrap();
        env.step(&[0.5, 0.0], &mut at).unwrap();
        // A move of zero has no noise.
        assert_eq!(at[1], 1.0);
        let error = (at[0] - 5.5) / 0.025f64.sqrt();
        sum += error * last;
        last = error;
    }
    let correlation = sum / f64::from(n);
    assert!(correlation.abs() < 5.0 / f64::from(n).sqrt(), "{correlation}");
}

#[test]
fn a_seeded_episode_is_pinned() {
    let mut env = build(true, 20);
    let mut at = [0.0; 2];
    env.reset(1, &mut at).unwrap();
    let places: Vec<_> = (0..3).map(|_| env.step(&[1.0, 0.5], &mut at).map(|_| at).unwrap()).collect();
    assert_eq!(
        places,
        [
            [1.7881061121006554, 1.7031919496536745],
            [2.9375528408215397, 2.201584956502572],
            [3.740123325297337, 2.5274486544339188]
        ]
    );
}

#[test]
fn without_noise_a_move_lands_on_its_mean() {
    let mut env = build(false, 20);
    let mut at = [0.0; 2];
    env.reset(0, &mut at).unwrap();
    env.step(&[0.5, -0.25], &mut at).unwrap();
    assert_eq!(at, [1.5, 0.75]);
}

#[test]
fn walls_stop_a_move() {
    for (from, by, to) in [
        ([0.25, 9.5], [-1.0, 1.0], [0.0, 10.0]),
        ([9.5, 0.25], [1.0, -1.0], [10.0, 0.0]),
        ([0.0, 5.0], [-1.0, 0.5], [0.0, 5.5]),
    ] {
        let (mut env, mut at) = (still_at(from[0], from[1]), [0.0; 2]);
        env.step(&by, &mut at).unwrap();
        assert_eq!(at, to);
    }
}

#[test]
fn reward_depends_on_the_location_before_the_move() {
    let (mut env, mut at) = (build(true, 20), [0.0; 2]);
    env.reset(0, &mut at).unwrap();
    for t in 0..20 {
        let expected = -distance(GOAL, at);
        let step = env.step(&[0.8, 0.9], &mut at).unwrap();
        assert_eq!(step.reward, expected);
        assert_eq!((step.terminated, step.truncated), (false, t == 19));
    }
    let mut env = still_at(8.0, 9.0);
    assert_eq!(env.step(&[-1.0, 0.0], &mut at).unwrap().reward, 0.0);
    assert_eq!(env.step(&[0.0, 0.0], &mut at).unwrap().reward, -1.0);
}

/// Whether a move that ends at a place is in danger according to the RDDL text.
fn lands_in_danger(place: [f64; 2]) -> bool {
    let (mut env, mut at) = (still_at(place[0], place[1]), [0.0; 2]);
    env.step(&[0.0, 0.0], &mut at).unwrap();
    assert_eq!(at, place);
    env.signals()[IN_DANGER] == 1.0
}

#[test]
fn zones_end_at_their_edges() {
    for x in [0.0, 1.0, 5.3, 10.0] {
        for (y, inside) in [(2.7, false), (2.7 + 1e-12, true), (3.0, true), (3.3 - 1e-12, true), (3.3, false)] {
            assert_eq!(lands_in_danger([x, y]), inside, "({x}, {y})");
        }
    }
    let [x, y] = DISC_CENTRE;
    for k in 0..64 {
        let (sin, cos) = (f64::from(k) * std::f64::consts::TAU / 64.0).sin_cos();
        for (radius, inside) in [(0.0, true), (1.0, true), (DISC_RADIUS - 1e-9, true), (DISC_RADIUS + 1e-9, false)] {
            let place = [x + radius * cos, y + radius * sin];
            assert_eq!(lands_in_danger(place), inside, "radius {radius}, angle {k}/64");
            assert_eq!(in_danger(place), inside, "by hand: radius {radius}, angle {k}/64");
        }
    }
    assert!(![START, GOAL, [0.0, 0.0], [5.0, 3.5], [5.0, 2.0]].into_iter().any(lands_in_danger));
}

#[test]
fn signals_are_read_after_the_step() {
    let (mut env, mut at) = (still_at(4.0, 2.0), [0.0; 2]);
    assert_eq!(
        env.spec().signals,
        ["location___x", "location___y", "landing___x", "landing___y", "in_danger", "distance"]
    );
    for y in [3.0, 4.0] {
        env.step(&[0.0, 1.0], &mut at).unwrap();
        assert_eq!(env.signals()[..IN_DANGER], [4.0, y, 4.0, y]);
        assert_eq!(env.signals()[IN_DANGER] == 1.0, in_danger([4.0, y]));
        assert_eq!(env.signals()[DISTANCE], distance(GOAL, [4.0, y]));
    }
}

#[test]
fn state_errors_name_the_key_and_what_is_accepted() {
    let mut env = still_at(4.0, 2.0);
    let mut refuse = |state: serde_json::Value| env.set_state(&state, &mut [0.0; 2]).unwrap_err().to_string();
    assert_eq!(
        refuse(json!({ "location___x": 10.5, "location___y": 1 })),
        "state: location___x = 10.5; expected a number from 0 to 10"
    );
    assert_eq!(refuse(json!({ "location___x": 1 })), "state: location___y is missing; expected a number from 0 to 10");
    assert_eq!(
        refuse(json!({ "location___x": 1, "location___y": 1, "z": 0 })),
        "state: unknown key \"z\"; the keys are location___x, location___y"
    );
    assert_eq!(refuse(json!([1, 2])), "state: [1,2] is not an object with the keys location___x, location___y");
}

#[test]
fn setting_a_state_restarts_the_step_count() {
    let (mut env, mut at) = (build(true, 3), [0.0; 2]);
    env.reset(0, &mut at).unwrap();
    for _ in 0..3 {
        env.step(&[1.0, 1.0], &mut at).unwrap();
    }
    env.set_state(&json!({ "location___x": 1, "location___y": 2.5 }), &mut at).unwrap();
    assert_eq!(at, [1.0, 2.5]);
    let truncated = [(); 3].map(|()| env.step(&[1.0, 1.0], &mut at).unwrap().truncated);
    assert_eq!(truncated, [false, false, true]);
}

#[test]
fn foreign_snapshots_are_rejected() {
    let mut env = build(true, 20);
    let good = {
        env.reset(0, &mut [0.0; 2]).unwrap();
        env.snapshot()
    };
    let mut refuse = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        env.restore(&bad, &mut [0.0; 2]).unwrap_err().to_string()
    };
    assert!(refuse(0, &[1]).contains("version 1, expected 3"));
    assert!(refuse(2, &21u64.to_le_bytes()).contains("step 21 is past the horizon of 20"));
    assert!(refuse(34, &f64::NAN.to_le_bytes()).contains("location___x is NaN"));
    assert!(refuse(42, &f64::INFINITY.to_le_bytes()).contains("location___y is inf"));
    assert!(matches!(build(true, 1).step(&[0.0; 2], &mut [0.0; 2]), Err(Error::Over)));
}

proptest! {
    #[test]
    fn no_finite_action_leaves_the_plane(seed: u64, actions in vec([-1e300..1e300, -2.0..2.0f64], 1..20)) {
        let (mut env, mut at) = (build(true, 20), [0.0; 2]);
        env.reset(seed, &mut at).unwrap();
        for action in actions {
            env.step(&action, &mut at).unwrap();
            prop_assert!(at.iter().all(|value| (0.0..=10.0).contains(value)), "{at:?}");
        }
    }

    #[test]
    fn no_bytes_make_restore_panic(mut bytes in vec(any::<u8>(), 0..100), known: bool) {
        let mut env = build(true, 20);
        if known && !bytes.is_empty() {
            bytes.resize(34 + 8 * 6, 0);
            bytes[0] = 3;
        }
        let before = env.snapshot();
        if env.restore(&bytes, &mut [0.0; 2]).is_err() {
            prop_assert_eq!(env.snapshot(), before);
        }
    }
}
