//! The multiplier: which way it moves, how fast, when it does not, and its limits.

use proptest::prelude::*;
use prudence_agent::multiplier::{Allowance, Multiplier, SumsByLabel, UPDATES_PER_MOVE};
use prudence_agent::settings::{Constraint, MultiplierSettings};

const BOTH: [Constraint; 2] = [Constraint::LowerBound, Constraint::Original];
const TIME: f64 = 16_000.0;

fn allowance() -> Allowance {
    Allowance::new(0.9, -7.0, &SumsByLabel::default())
}

/// After `moves` with this estimate, from a lambda of 1.
fn moved(constraint: Constraint, estimate: f64, moves: usize) -> Multiplier {
    let mut multiplier = Multiplier::new(&MultiplierSettings::default());
    let move_it = |_| multiplier.update(constraint, estimate, &allowance(), TIME, &Default::default());
    (0..moves).for_each(move_it);
    multiplier
}

#[test]
fn what_is_compared_follows_from_the_target() {
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} != {b}");
    close(allowance().threshold(Constraint::LowerBound), -0.35);
    close(allowance().threshold(Constraint::Original), 0.95);
    close(Allowance::new(0.8, -5.0, &SumsByLabel::default()).threshold(Constraint::LowerBound), -0.5);
    // The model's doubt about safe episodes does not count as a violation, and its doubt about unsafe ones does not hide
    // one. There are limits to both.
    let sums = |safe: &[f32], broken: &[f32]| SumsByLabel { safe: safe.to_vec(), broken: broken.to_vec() };
    let threshold = |sums: &SumsByLabel| Allowance::new(0.9, -7.0, sums).threshold(Constraint::LowerBound);
    close(threshold(&sums(&[-0.125, 0.0], &[-6.0, -2.0])), -0.0625 - 0.05 * (4.0 - 0.0625));
    close(threshold(&sums(&[-2.0], &[])), -0.2 - 0.05 * 6.8);
    close(threshold(&sums(&[], &[-0.01, -0.01])), -0.05);
    let mut latest = SumsByLabel::default();
    (0..30).for_each(|i| latest.add(-(i as f32), false));
    assert_eq!((latest.broken[0], latest.broken.len()), (-10.0, 20), "the latest of a kind");
}

#[test]
fn the_multiplier_rises_while_the_constraint_is_missed_and_falls_while_it_is_kept() {
    for constraint in BOTH {
        let threshold = allowance().threshold(constraint);
        for (margin, up) in [(-0.3, true), (-1e-3, true), (0.04, false), (1e-3, false)] {
            for moves in 1..4 {
                let [before, after] = [moves - 1, moves].map(|n| moved(constraint, threshold + margin, n).value());
                assert_eq!(after > before, up, "{constraint:?}, margin {margin}");
            }
        }
    }
}

#[test]
fn twice_the_allowed_share_multiplies_lambda_by_e_in_its_time() {
    for (constraint, estimate) in [(Constraint::LowerBound, -0.7), (Constraint::Original, 0.9)] {
        let moves = TIME as usize / UPDATES_PER_MOVE as usize;
        let [early, late] = [100, 100 + moves].map(|n| moved(constraint, estimate, n).value().ln());
        let expected = (moves * UPDATES_PER_MOVE as usize) as f64 / TIME;
        assert!((late - early - expected).abs() < 1e-3, "{constraint:?}: {}", late - early);
    }
}

/// However long the constraint was missed or met, the multiplier comes back equally soon.
#[test]
fn wind_up_is_bounded() {
    for constraint in BOTH {
        let [missed, met] = match constraint {
            Constraint::LowerBound => [-7.0, 0.0],
            Constraint::Original => [0.0, 1.0],
        };
        for (first, then) in [(missed, met), (met, missed)] {
            let back = |n: usize| {
                let mut multiplier = moved(constraint, first, n);
                let end = multiplier.value();
                (1..100_000).find(|_| {
                    multiplier.update(constraint, then, &allowance(), TIME, &Default::default());
                    (multiplier.value() / end).ln().abs() > 1.0
                })
            };
            assert_eq!(back(2_000), back(20_000));
        }
        assert!(moved(constraint, missed, 20_000).at_limit(&Default::default()));
        assert!(!moved(constraint, met, 20_000).at_limit(&Default::default()));
    }
}

#[test]
fn a_fixed_multiplier_does_not_move() {
    let fixed = MultiplierSettings { fixed: Some(2.5), ..MultiplierSettings::default() };
    let mut multiplier = Multiplier::new(&fixed);
    (0..10).for_each(|_| multiplier.update(Constraint::LowerBound, -1.0, &allowance(), TIME, &fixed));
    assert_eq!(multiplier.value(), 2.5);
    assert!(!multiplier.at_limit(&fixed));
    assert_eq!(Multiplier::off().value(), 0.0);
    // Checkpoints hold it as text.
    for fixed in [0.0, 2.5] {
        let multiplier = Multiplier::new(&MultiplierSettings { fixed: Some(fixed), ..MultiplierSettings::default() });
        let text = serde_json::to_string(&multiplier).unwrap();
        assert_eq!(serde_json::from_str::<Multiplier>(&text).unwrap(), multiplier);
    }
}

proptest! {
    #[test]
    fn the_multiplier_stays_within_its_limits(
        estimates in prop::collection::vec(prop_oneof![-7.0..0.0f64, Just(f64::NAN), Just(f64::NEG_INFINITY), -0.1..0.0f64], 1..300),
        initial in 1e-3..100.0f64,
    ) {
        let settings = MultiplierSettings { initial, ..MultiplierSettings::default() };
        let mut multiplier = Multiplier::new(&settings);
        for estimate in estimates {
            multiplier.update(Constraint::LowerBound, estimate, &allowance(), 50.0, &settings);
            let (least, most) = (initial / 2.000001, initial.max(10.0) * 1.000001);
            prop_assert!((least..=most).contains(&multiplier.value()));
        }
    }
}
