//! Optimal plans by dynamic programming, and their outcomes on the grid and in the environment.

use crate::plane::{IN_DANGER, NOISE_VARIANCE, START, build};
use prudence_env::Env as _;

use crate::grid::{HORIZON, LANES, Model};

/// The action at `table[t][count][cell]`; the last count means "already unsafe".
#[derive(Clone)]
pub struct Plan {
    pub allowed: usize,
    pub table: Vec<Vec<Vec<u16>>>,
}

/// The mean return and the share of safe episodes.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub total: f64,
    pub safe: f64,
}

impl Outcome {
    pub fn worth(&self, multiplier: f64) -> f64 {
        self.total - multiplier * (1.0 - self.safe)
    }
}

/// How often each cell is visited: `[t][count][cell]`.
pub type Visits = Vec<Vec<Vec<f64>>>;

/// Values and actions where only the return matters.
pub struct Free {
    values: Vec<Vec<f32>>,
    table: Vec<Vec<u16>>,
}

impl Plan {
    /// The plan that ignores the rule; `allowed` only determines which of its episodes are safe.
    pub fn careless(free: &Free, allowed: usize) -> Self {
        Self { allowed, table: free.table.iter().map(|table| vec![table.clone(); allowed + 2]).collect() }
    }
}

impl Model {
    /// Which chunks of cells can be reached in `t` steps; no plan is made for the others.
    pub fn reachable(&self, t: usize) -> Vec<bool> {
        let reach = t as f64 + 4.5 * (NOISE_VARIANCE * t as f64).sqrt() + 0.2;
        (0..self.size() / LANES)
            .map(|chunk| {
                let (x, y) = (chunk * LANES % self.x.stride, chunk * LANES / self.x.stride);
                x < self.x.cells() && self.x.centres[x] < START[0] + reach && self.y.centres[y] < START[1] + reach
            })
            .collect()
    }

    /// The best value and action of each cell, given the value of each landing.
    fn best(&self, next: &[f32], t: usize) -> (Vec<f32>, Vec<u16>) {
        let mut value = vec![f32::NEG_INFINITY; self.size()];
        let mut action = vec![0; self.size()];
        self.expectations(next, &self.reachable(t), |this, at, sums| {
            let best = value[at..at + LANES].iter_mut().zip(&mut action[at..at + LANES]);
            for (sum, (value, action)) in sums.iter().zip(best) {
                let better = *sum > *value;
                *value = if better { *sum } else { *value };
                *action = if better { this } else { *action };
            }
        });
        for (cell, value) in value.iter_mut().enumerate() {
            *value = if value.is_finite() { *value + self.reward[cell] } else { self.out_of_reach(cell, t) };
        }
        (value, action)
    }

    /// A substitute for the value where no plan is made; it only enters with weights below 1e-5.
    pub fn out_of_reach(&self, cell: usize, t: usize) -> f32 {
        (HORIZON - t) as f32 * self.reward[cell]
    }

    /// The value of landing in each cell, by the count before; `values` is by count too, the last being "already
    /// unsafe".
    pub fn landings_by_count(&self, values: &[Vec<f32>], allowed: usize, multiplier: f64) -> Vec<Vec<f32>> {
        let mut landing = values.to_vec();
        for count in 0..=allowed {
            let penalty = if count == allowed { multiplier as f32 } else { 0.0 };
            for (cell, value) in landing[count].iter_mut().enumerate() {
                *value += self.danger[cell] * (values[count + 1][cell] - penalty - *value);
            }
        }
        landing
    }

    pub fn plan_free(&self) -> Free {
        let mut free = Free { values: vec![vec![0.0; self.size()]; HORIZON + 1], table: vec![Vec::new(); HORIZON] };
        for t in (0..HORIZON).rev() {
            (free.values[t], free.table[t]) = self.best(&free.values[t + 1], t);
        }
        free
    }

    /// Maximises E(return) - multiplier P(more than `allowed` steps in the zones).
    pub fn plan(&self, free: &Free, allowed: usize, multiplier: f64) -> Plan {
        let mut table = vec![Vec::new(); HORIZON];
        let mut values = vec![vec![0.0; self.size()]; allowed + 2]; // [count]
        for t in (0..HORIZON).rev() {
            let landing = self.landings_by_count(&values, allowed, multiplier);
            let live = landing[..=allowed].iter().map(|landing| self.best(landing, t));
            (values, table[t]) = live.chain([(free.values[t].clone(), free.table[t].clone())]).unzip();
        }
        Plan { allowed, table }
    }

    pub fn visits(&self, plan: &Plan) -> Visits {
        let layers = plan.allowed + 2;
        let mut visits = vec![vec![vec![0.0; self.size()]; layers]; HORIZON + 1];
        visits[0][0][self.start] = 1.0;
        for t in 0..HORIZON {
            let (now, later) = visits.split_at_mut(t + 1);
            for count in 0..layers {
                for (cell, share) in now[t][count].iter().enumerate().filter(|(_, share)| **share > 1e-10) {
                    self.landings(cell, plan.table[t][count][cell], |to, weight| {
                        let (share, danger) = (share * f64::from(weight), f64::from(self.danger[to]));
                        later[0][count][to] += share * (1.0 - danger);
                        later[0][(count + 1).min(layers - 1)][to] += share * danger;
                    });
                }
            }
        }
        visits
    }

    pub fn outcome(&self, visits: &Visits) -> Outcome {
        let reward = |layer: &Vec<f64>| layer.iter().zip(&self.reward).map(|(p, r)| p * f64::from(*r)).sum::<f64>();
        let total = visits[..HORIZON].iter().flatten().map(reward).sum();
        let unsafe_share: f64 = visits[HORIZON][visits[HORIZON].len() - 1].iter().sum();
        Outcome { total, safe: 1.0 - unsafe_share }
    }

    /// Runs the plan in the true environment, with each location mapped to its cell; returns the outcome and its
    /// standard errors.
    pub fn simulate(&self, plan: &Plan, episodes: u64) -> (Outcome, Outcome) {
        let mut env = build(true, HORIZON);
        let mut at = [0.0; 2];
        let (mut sum, mut squares, mut safe) = (0.0, 0.0, 0.0);
        for seed in 0..episodes {
            env.reset(seed, &mut at).unwrap();
            let (mut total, mut count) = (0.0, 0);
            for table in &plan.table {
                let action = table[count.min(plan.allowed + 1)][self.cell(at)];
                total += env.step(&self.action(action), &mut at).unwrap().reward;
                count += usize::from(env.signals()[IN_DANGER] == 1.0);
            }
            sum += total;
            squares += total * total;
            safe += f64::from(u8::from(count <= plan.allowed));
        }
        let n = episodes as f64;
        let (total, safe) = (sum / n, safe / n);
        let error =
            Outcome { total: ((squares / n - total * total) / n).sqrt(), safe: (safe * (1.0 - safe) / n).sqrt() };
        (Outcome { total, safe }, error)
    }
}
