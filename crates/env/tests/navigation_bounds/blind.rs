//! Plans that do not see the count of steps in the zones, to measure how much memory improves a plan.
//!
//! The best such plan is hard to find, so this is a hill climb to a local optimum, which no change in a single cell
//! improves: each cell takes the action that is best on average over the counts with which the plan enters the cell,
//! weighted by how often it does. If the plan sees the time, a sweep from the last step to the first never makes it
//! worse. Otherwise changes interact, so random subsets of cells change; a change that makes the plan worse is dropped,
//! and the next one affects fewer cells.

use prudence_core::random::{self, Stream};
use rand::RngExt as _;

use crate::grid::{HORIZON, LANES, Model};
use crate::plan::{Outcome, Plan, Visits};

impl Model {
    /// Climbs from the plan that acts at every count as `from` does when no further step in the zones is allowed.
    pub fn climb(&self, from: &Plan, clock: bool, multiplier: f64) -> (Plan, Outcome) {
        let careful = from.table.iter().map(|counts| vec![counts[from.allowed].clone(); from.allowed + 2]).collect();
        let mut plan = Plan { allowed: from.allowed, table: careful };
        if !clock {
            self.hide_clock(&mut plan);
        }
        let mut stream = random::stream(0, "climb", 0);
        let mut visits = self.visits(&plan);
        let mut best = self.outcome(&visits);
        let mut share = 1.0;
        while share > 0.02 {
            let new = self.sweep(&plan, &visits, clock, multiplier, share, &mut stream);
            let new_visits = self.visits(&new);
            let outcome = self.outcome(&new_visits);
            let gain = outcome.worth(multiplier) - best.worth(multiplier);
            if gain > 1e-3 {
                (plan, visits, best) = (new, new_visits, outcome);
                share = f64::min(1.0, share * 1.5);
            } else {
                share = if clock { 0.0 } else { share / 2.0 };
            }
        }
        (plan, best)
    }

    /// Makes every cell act at all times as it does at the time at which it is visited most.
    fn hide_clock(&self, plan: &mut Plan) {
        let visits = self.visits(plan);
        for cell in 0..self.size() {
            let share = |t: usize| visits[t].iter().map(|layer| layer[cell]).sum::<f64>();
            // Halfway, all cells are in reach, so cells that are never visited have an action too.
            let t = (0..HORIZON).fold(HORIZON / 2, |most, t| if share(t) > share(most) { t } else { most });
            let action = plan.table[t][0][cell];
            plan.table.iter_mut().flatten().for_each(|table| table[cell] = action);
        }
    }

    /// Changes about a `share` of the cells once.
    fn sweep(
        &self,
        plan: &Plan,
        visits: &Visits,
        clock: bool,
        multiplier: f64,
        share: f64,
        stream: &mut Stream,
    ) -> Plan {
        let mut new = plan.clone();
        let mut scores = vec![0.0; self.actions() * self.size()]; // [action][cell]
        let mut weights = vec![0.0; self.size()];
        let mut values = vec![vec![0.0; self.size()]; plan.allowed + 2]; // [count]
        for t in (0..HORIZON).rev() {
            let landing = self.landings_by_count(&values, plan.allowed, multiplier);
            for (visits, landing) in visits[t].iter().zip(&landing) {
                let seen: Vec<bool> =
                    visits.chunks(LANES).map(|chunk| chunk.iter().any(|visit| *visit > 1e-7)).collect();
                for (cell, visit) in visits.iter().enumerate().filter(|(cell, _)| seen[cell / LANES]) {
                    weights[cell] += visit;
                }
                self.expectations(landing, &seen, |action, at, sums| {
                    let scores = &mut scores[usize::from(action) * self.size() + at..][..LANES];
                    for ((score, visit), sum) in scores.iter_mut().zip(&visits[at..]).zip(sums) {
                        *score += *visit as f32 * sum;
                    }
                });
            }
            if clock {
                self.adopt(&scores, &mut new.table[t..=t], |cell| weights[cell] > 0.0);
                scores.fill(0.0);
                weights.fill(0.0);
            }
            for (count, value) in values.iter_mut().enumerate() {
                *value = self.value(&landing[count], &new.table[t][count], t);
            }
        }
        if !clock {
            self.adopt(&scores, &mut new.table, |cell| weights[cell] > 0.0 && stream.random::<f64>() < share);
        }
        new
    }

    /// Gives the chosen cells their best action, at all times and counts of `tables`.
    fn adopt(&self, scores: &[f32], tables: &mut [Vec<Vec<u16>>], mut chosen: impl FnMut(usize) -> bool) {
        for cell in (0..self.size()).filter(|cell| chosen(*cell)) {
            let score = |action: u16| scores[usize::from(action) * self.size() + cell];
            let best =
                (0..self.actions() as u16).fold(0, |best, this| if score(this) > score(best) { this } else { best });
            tables.iter_mut().flatten().for_each(|table| table[cell] = best);
        }
    }

    /// The value of each cell under the actions of one table.
    fn value(&self, landing: &[f32], actions: &[u16], t: usize) -> Vec<f32> {
        let reachable = self.reachable(t);
        let value = |cell: usize| {
            let mut sum = 0.0;
            if !reachable[cell / LANES] || cell % self.x.stride >= self.x.cells() {
                return self.out_of_reach(cell, t);
            }
            self.landings(cell, actions[cell], |to, weight| sum += weight * landing[to]);
            sum + self.reward[cell]
        };
        (0..self.size()).map(value).collect()
    }
}
