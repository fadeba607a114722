//! The best possible results in navigation, by dynamic programming on a grid: the numbers that tasks/navigation.toml
//! quotes.
//!
//! A plan sees the location, the time and the count of steps in the zones, and maximises E(return) - multiplier
//! P(unsafe). Mixtures, by episode, of the plans of neighbouring multipliers trace the best return at each share of
//! safe episodes, and the duality bound of each multiplier limits it from above. The plans are then run in the
//! environment itself, whose results must agree with the grid.

mod blind;
mod grid;
mod plan;
#[path = "../plane/mod.rs"]
mod plane;

use grid::Model;
use plan::{Free, Outcome, Plan};

/// The number of episodes in a simulation.
const EPISODES: u64 = 20_000;

/// Plans by increasing multiplier, with their outcomes on the grid.
struct Frontier {
    multipliers: Vec<f64>,
    plans: Vec<Plan>,
    outcomes: Vec<Outcome>,
}

impl Frontier {
    fn new(model: &Model, free: &Free, allowed: usize, multipliers: &[f64]) -> Self {
        let plans: Vec<_> = multipliers.iter().map(|multiplier| model.plan(free, allowed, *multiplier)).collect();
        let outcomes = plans.iter().map(|plan| model.outcome(&model.visits(plan))).collect();
        Self { multipliers: multipliers.to_vec(), plans, outcomes }
    }

    /// The first of the two plans on either side of a share of safe episodes, and the weight of the second in their
    /// mixture.
    fn around(&self, safe: f64) -> (usize, f64) {
        let second = self.outcomes.iter().position(|outcome| outcome.safe >= safe).expect("a multiplier large enough");
        let first = second.checked_sub(1).expect("a multiplier small enough");
        let [low, high] = [first, second].map(|i| self.outcomes[i].safe);
        (first, (safe - low) / (high - low))
    }

    /// The return of the mixture with this share of safe episodes, and an upper bound for any plan.
    fn at(&self, safe: f64) -> (f64, f64) {
        let (first, weight) = self.around(safe);
        let bounds = self.multipliers.iter().zip(&self.outcomes).map(|(by, o)| o.worth(*by) + by * (1.0 - safe));
        (mix(self.outcomes[first].total, self.outcomes[first + 1].total, weight), bounds.fold(f64::INFINITY, f64::min))
    }

    /// Checks the best return at given shares of safe episodes; `pins` are pairs of share and return.
    fn assert_at(&self, what: &str, model: &Model, pins: &[(f64, f64)]) {
        for (safe, pinned) in pins.iter().copied() {
            let (total, bound) = self.at(safe);
            assert!(total <= bound + 0.01 && bound - total < 0.1, "{what}: {total} should be just below {bound}");
            let pinned = Outcome { total: pinned, safe };
            assert_outcome(what, pinned, Outcome { total, safe }, self.simulate(model, safe));
        }
    }

    /// Runs the mixture in the environment; returns the outcome and its standard errors.
    fn simulate(&self, model: &Model, safe: f64) -> (Outcome, Outcome) {
        let (first, weight) = self.around(safe);
        let [(a, a_error), (b, b_error)] = [first, first + 1].map(|i| model.simulate(&self.plans[i], EPISODES));
        let both = |of: fn(&Outcome) -> f64, a: &Outcome, b: &Outcome| mix(of(a), of(b), weight);
        let mixed = |a, b| Outcome { total: both(|o| o.total, a, b), safe: both(|o| o.safe, a, b) };
        // Both plans ran with the same seeds, so their errors do not average out.
        (mixed(&a, &b), mixed(&a_error, &b_error))
    }
}

fn mix(a: f64, b: f64, weight: f64) -> f64 {
    a + weight * (b - a)
}

fn show(what: &str, grid: &Outcome, simulated: (Outcome, Outcome)) {
    let (simulated, error) = simulated;
    println!(
        "{what}: return {:.3}, safe {:.4}; simulated: return {:.3} ± {:.3}, safe {:.4} ± {:.4}",
        grid.total, grid.safe, simulated.total, error.total, simulated.safe, error.safe
    );
}

/// The outcome on the grid must equal the pinned one, and the simulated one must agree with the grid.
fn assert_outcome(what: &str, pinned: Outcome, grid: Outcome, simulated: (Outcome, Outcome)) {
    show(what, &grid, simulated);
    let off = [grid.total - pinned.total, 10.0 * (grid.safe - pinned.safe)];
    assert!(off.iter().all(|off| off.abs() < 0.02), "{what}: {grid:?} on the grid, but {pinned:?} is pinned");
    let (simulated, error) = simulated;
    // The allowance beyond chance is for differences within a cell, which matter most along the edge of the strip.
    assert!(
        (simulated.total - grid.total).abs() < 4.0 * error.total + 0.008 * grid.total.abs(),
        "{what}: {simulated:?}"
    );
    assert!((simulated.safe - grid.safe).abs() < 4.0 * error.safe + 0.005, "{what}: {simulated:?}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "slow without --release")]
fn best_returns_are_as_pinned() {
    let model = Model::new(3, false);
    let free = model.plan_free();
    for (allowed, safe) in [(0, 0.0054), (1, 0.0634)] {
        let plan = Plan::careless(&free, allowed);
        let outcome = model.outcome(&model.visits(&plan));
        let what = format!("planned without a rule, at most {allowed} in the zones");
        assert_outcome(&what, Outcome { total: -46.985, safe }, outcome, model.simulate(&plan, EPISODES));
    }
    let frontier = Frontier::new(&model, &free, 1, &[9.4, 9.5, 10.0, 10.2, 14.0, 14.5]);
    frontier.assert_at("at most 1 step in the zones", &model, &[(0.8, -52.264), (0.9, -53.241), (0.95, -53.805)]);
    let model = Model::new(3, true);
    let frontier = Frontier::new(&model, &model.plan_free(), 0, &[265.0, 275.0, 285.0]);
    frontier.assert_at("no step in the zones", &model, &[(0.9, -67.223)]);
}

/// On a coarse grid, where all returns are about half a unit worse; the fine grid gives the same differences
/// (`tables`).
#[test]
#[cfg_attr(debug_assertions, ignore = "slow without --release")]
fn seeing_the_count_improves_the_return_by_most_of_a_unit_and_seeing_the_time_by_nothing() {
    let (model, multiplier) = (Model::new(1, false), 11.0);
    let plan = model.plan(&model.plan_free(), 1, multiplier);
    let full = model.outcome(&model.visits(&plan));
    let [clock, blind] = [true, false].map(|clock| model.climb(&plan, clock, multiplier).1);
    println!("sees count and time: {full:?}; sees time: {clock:?}; sees neither: {blind:?}");
    let [full, clock, blind] = [full, clock, blind].map(|outcome| outcome.worth(multiplier));
    assert!((full - clock - 0.80).abs() < 0.05, "with the count {full}, without {clock}");
    assert!((-0.005..0.05).contains(&(clock - blind)), "with the time {clock}, without {blind}");
}

/// Prints all numbers: `cargo test --release -p prudence-env --test navigation_bounds -- --ignored --nocapture`.
#[test]
#[ignore = "prints long tables and takes minutes"]
fn tables() {
    let model = Model::new(3, true);
    let free = model.plan_free();
    let lists: [&[f64]; 2] = [
        &[0.0, 20.0, 38.0, 40.0, 80.0, 90.0, 200.0, 290.0, 310.0, 500.0, 700.0, 720.0, 800.0, 900.0, 1000.0],
        &[0.0, 8.0, 9.4, 9.5, 9.8, 10.0, 10.2, 11.0, 14.0, 14.5, 20.0, 22.0, 60.0, 70.0],
    ];
    for (allowed, multipliers) in lists.into_iter().enumerate() {
        println!("at most {allowed} steps in the zones");
        let frontier = Frontier::new(&model, &free, allowed, multipliers);
        for ((multiplier, plan), outcome) in multipliers.iter().zip(&frontier.plans).zip(&frontier.outcomes) {
            show(&format!("  multiplier {multiplier}"), outcome, model.simulate(plan, EPISODES));
        }
        for safe in [0.8, 0.85, 0.9, 0.95, 0.97, 0.99] {
            let (total, bound) = frontier.at(safe);
            println!("  safe {safe}: return {total:.3}, at most {bound:.3} on the grid");
            show("    mixture", &Outcome { total, safe }, frontier.simulate(&model, safe));
        }
    }
    println!("at most 1 step in the zones, without seeing the count");
    let model = Model::new(3, false);
    let free = model.plan_free();
    for multiplier in [10.0, 10.5, 11.0, 20.0] {
        let plan = model.plan(&free, 1, multiplier);
        for clock in [true, false] {
            let (blind, outcome) = model.climb(&plan, clock, multiplier);
            show(&format!("  multiplier {multiplier}, clock {clock}"), &outcome, model.simulate(&blind, EPISODES));
        }
    }
}
