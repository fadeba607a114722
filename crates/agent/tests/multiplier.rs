//! The multiplier: which way it moves, when it does not, and its limits.

use proptest::prelude::*;
use prudence_agent::Algorithm;
use prudence_agent::multiplier::Multiplier;
use prudence_agent::settings::{Constraint, MultiplierSettings};

fn settings() -> MultiplierSettings {
    MultiplierSettings { initial: 1.0, freeze: 0, learning_rate: 0.05, max: 3.0, ..MultiplierSettings::default() }
}

#[test]
fn the_multiplier_rises_while_the_constraint_is_missed_and_falls_while_it_is_kept() {
    let settings = settings();
    for constraint in [Constraint::LowerBound, Constraint::Original] {
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
    let settings = settings();
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
    let frozen = MultiplierSettings { freeze: 4, ..settings() };
    let mut multiplier = Multiplier::new(&frozen);
    let moved: Vec<bool> = (0..6)
        .map(|_| {
            multiplier.update(-1.0, 0.0, &frozen);
            multiplier.value() != 1.0
        })
        .collect();
    assert_eq!(moved, [false, false, false, false, true, true]);
    let fixed = MultiplierSettings { fixed: Some(2.5), ..settings() };
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
        let settings = MultiplierSettings { learning_rate: rate, ..settings() };
        let mut multiplier = Multiplier::new(&settings);
        for estimate in estimates {
            multiplier.update(estimate, settings.target.ln(), &settings);
            prop_assert!((0.0..=settings.max).contains(&multiplier.value()));
        }
    }
}
