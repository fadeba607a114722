//! What can be reached in navigation, by dynamic programming on a grid: the numbers tasks/navigation.toml quotes.
//!
//! A plan sees location, clock and count of steps in the zones, and maximises E(return) - multiplier P(unsafe). Plans of
//! neighbouring multipliers, mixed by episode, trace the best return at each share of safe episodes; the multiplier's own
//! line bounds it from above. The plans are then played in the environment itself, which must bear the grid out.

mod blind;
mod grid;
mod plan;
#[path = "../plane/mod.rs"]
mod plane;

use grid::Model;
use plan::{Free, Outcome, Plan};

/// Episodes of a simulation.
const EPISODES: u64 = 20_000;

/// Plans by rising multiplier, with what they give on the grid.
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

    /// The first of the two plans around a share of safe episodes, and the weight of the second in their mixture.
    fn around(&self, safe: f64) -> (usize, f64) {
        let second = self.outcomes.iter().position(|outcome| outcome.safe >= safe).expect("a multiplier large enough");
        let first = second.checked_sub(1).expect("a multiplier small enough");
        let [low, high] = [first, second].map(|i| self.outcomes[i].safe);
        (first, (safe - low) / (high - low))
    }

    /// The return of the mixture with this share of safe episodes, and a bound on any plan's.
    fn at(&self, safe: f64) -> (f64, f64) {
        let (first, weight) = self.around(safe);
        let bounds = self.multipliers.iter().zip(&self.outcomes).map(|(by, o)| o.worth(*by) + by * (1.0 - safe));
        (mix(self.outcomes[first].total, self.outcomes[first + 1].total, weight), bounds.fold(f64::INFINITY, f64::min))
    }

    /// Checks pairs of a share of safe episodes and the best return there.
    fn assert_at(&self, what: &str, model: &Model, pins: &[(f64, f64)]) {
        for (safe, pinned) in pins.iter().copied() {
            let (total, bound) = self.at(safe);
            assert!(total <= bound + 0.01 && bound - total < 0.1, "{what}: {total} should be just below {bound}");
            let pinned = Outcome { total: pinned, safe };
            assert_outcome(what, pinned, Outcome { total, safe }, self.simulate(model, safe));
        }
    }

    /// The mixture played in the environment: outcome and standard errors.
    fn simulate(&self, model: &Model, safe: f64) -> (Outcome, Outcome) {
        let (first, weight) = self.around(safe);
        let [(a, a_error), (b, b_error)] = [first, first + 1].map(|i| model.simulate(&self.plans[i], EPISODES));
        let both = |of: fn(&Outcome) -> f64, a: &Outcome, b: &Outcome| mix(of(a), of(b), weight);
        let mixed = |a, b| Outcome { total: both(|o| o.total, a, b), safe: both(|o| o.safe, a, b) };
        // Both saw the same seeds, so that the errors do not average out.
        (mixed(&a, &b), mixed(&a_error, &b_error))
    }
}

fn mix(a: f64, b: f64, weight: f64) -> f64 {
    a + weight * (b - a)
}

fn show(what: &str, grid: &Outcome, played: (Outcome, Outcome)) {
    let (played, error) = played;
    println!(
        "{what}: return {:.3}, safe {:.4}; played: return {:.3} ± {:.3}, safe {:.4} ± {:.4}",
        grid.total, grid.safe, played.total, error.total, played.safe, error.safe
    );
}

/// What the grid says must be as pinned, and what is played must be as the grid says.
fn assert_outcome(what: &str, pinned: Outcome, grid: Outcome, played: (Outcome, Outcome)) {
    show(what, &grid, played);
    let off = [grid.total - pinned.total, 10.0 * (grid.safe - pinned.safe)];
    assert!(off.iter().all(|off| off.abs() < 0.02), "{what}: {grid:?}, but pinned is {pinned:?}");
    let (played, error) = played;
    // Beside chance: places within a cell differ, which tells most on the way along the strip's edge.
    assert!((played.total - grid.total).abs() < 4.0 * error.total + 0.008 * grid.total.abs(), "{what}: {played:?}");
    assert!((played.safe - grid.safe).abs() < 4.0 * error.safe + 0.005, "{what}: {played:?}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes long without --release")]
fn best_returns_are_as_pinned() {
    let model = Model::new(3, false);
    let free = model.plan_free();
    for (allowed, safe) in [(0, 0.0054), (1, 0.0634)] {
        let plan = Plan::careless(&free, allowed);
        let outcome = model.outcome(&model.visits(&plan));
        let what = format!("no rule, judged by at most {allowed}");
        assert_outcome(&what, Outcome { total: -46.985, safe }, outcome, model.simulate(&plan, EPISODES));
    }
    let frontier = Frontier::new(&model, &free, 1, &[9.4, 9.5, 10.0, 10.2, 14.0, 14.5]);
    frontier.assert_at("at most 1 in the zones", &model, &[(0.8, -52.264), (0.9, -53.241), (0.95, -53.805)]);
    let model = Model::new(3, true);
    let frontier = Frontier::new(&model, &model.plan_free(), 0, &[265.0, 275.0, 285.0]);
    frontier.assert_at("none in the zones", &model, &[(0.9, -67.223)]);
}

/// On a coarse grid, about half a unit worse throughout; the fine one gives the same differences (see `tables`).
#[test]
#[cfg_attr(debug_assertions, ignore = "takes long without --release")]
fn memory_is_worth_most_of_a_unit_and_the_clock_nothing() {
    let (model, multiplier) = (Model::new(1, false), 11.0);
    let plan = model.plan(&model.plan_free(), 1, multiplier);
    let full = model.outcome(&model.visits(&plan));
    let [clock, blind] = [true, false].map(|clock| model.climb(&plan, clock, multiplier).1);
    println!("sees count and clock {full:?}, clock {clock:?}, neither {blind:?}");
    let [full, clock, blind] = [full, clock, blind].map(|outcome| outcome.worth(multiplier));
    assert!((full - clock - 0.80).abs() < 0.05, "count {full}, no count {clock}");
    assert!((-0.005..0.05).contains(&(clock - blind)), "clock {clock}, no clock {blind}");
}

/// All numbers of the report: `cargo test --release -p prudence-env --test navigation_bounds -- --ignored --nocapture`.
#[test]
#[ignore = "prints the long tables; minutes"]
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
    println!("at most 1 step in the zones, without memory");
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
