//! Navigation's reference numbers.
use prudence_env::Env as _;
use prudence_env::navigation::{GOAL, NOISE_VARIANCE, Navigation, SIDE, START, Settings, distance, in_danger};

const LANES: usize = 20;
const HORIZON: usize = 20;

struct Kernel { first: usize, weights: Vec<f32> }

struct Model {
    n: usize,
    step: f64,
    moves: Vec<f64>,
    kernels: Vec<Vec<Kernel>>,      // [move][cell]
    from_start: [Vec<Kernel>; 2],      // [dimension][move]
    danger: Vec<f32>,
    reward: Vec<f32>,
}

fn normal_cdf(z: f64) -> f64 {
    // erfc by Chebyshev fit (Numerical Recipes), 1.2e-7
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    let poly = [-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277];
    let sum = poly.iter().rev().fold(0.0, |s, c| s * t + c);
    let tail = 0.5 * t * (-x * x + sum).exp();
    if z > 0.0 { 1.0 - tail } else { tail }
}

fn kernel(n: usize, step: f64, from: f64, by: f64) -> Kernel {
    let mean = from + by;
    let variance = (NOISE_VARIANCE * by.abs() - step * step / 12.0).max(1e-12);
    let sd = variance.sqrt();
    let cell = |x: f64| ((x / step).floor().max(0.0) as usize).min(n - 1);
    let (first, last) = (cell(mean - 4.5 * sd), cell(mean + 4.5 * sd));
    let below = |edge: usize| if edge == first { 0.0 } else if edge == last + 1 { 1.0 } else { normal_cdf((edge as f64 * step - mean) / sd) };
    let weights = (first..=last).map(|i| (below(i + 1) - below(i)) as f32).collect();
    Kernel { first, weights }
}

impl Model {
    fn new(n: usize, per_side: usize) -> Self {
        let step = SIDE / n as f64;
        let moves: Vec<f64> = (0..2 * per_side + 1).map(|i| i as f64 / per_side as f64 - 1.0).collect();
        let centre = |i: usize| (i as f64 + 0.5) * step;
        let kernels = moves.iter().map(|by| (0..n).map(|i| kernel(n, step, centre(i), *by)).collect()).collect();
        let from_start = [0, 1].map(|d| moves.iter().map(|by| kernel(n, step, START[d], *by)).collect());
        let mut danger = vec![0.0; n * n];
        let mut reward = vec![0.0; n * n];
        let fine = 16;
        for y in 0..n {
            for x in 0..n {
                let hits = (0..fine * fine).filter(|k| {
                    let sub = |k: usize, i: usize| (i as f64 + (k as f64 + 0.5) / fine as f64) * step;
                    in_danger([sub(k % fine, x), sub(k / fine, y)])
                }).count();
                danger[y * n + x] = hits as f32 / (fine * fine) as f32;
                reward[y * n + x] = -distance(GOAL, [centre(x), centre(y)]) as f32;
            }
        }
        Self { n, step, moves, kernels, from_start, danger, reward }
    }
    fn cell(&self, at: [f64; 2]) -> usize {
        let i = |x: f64| ((x / self.step) as usize).min(self.n - 1);
        i(at[1]) * self.n + i(at[0])
    }

    /// out[r][..] = sum over r' of P(r -> r') values[r'][..]
    fn smear(&self, which: usize, values: &[f32], mut each: impl FnMut(usize, &[f32; LANES])) {
        let n = self.n;
        for (r, kernel) in self.kernels[which].iter().enumerate() {
            for x in (0..n).step_by(LANES) {
                let mut sum = [0.0f32; LANES];
                for (k, w) in kernel.weights.iter().enumerate() {
                    let at = (kernel.first + k) * n + x;
                    let row: &[f32; LANES] = values[at..at + LANES].try_into().unwrap();
                    for l in 0..LANES { sum[l] += w * row[l]; }
                }
                each(r * n + x, &sum);
            }
        }
    }

    fn transpose(&self, m: &[f32]) -> Vec<f32> {
        let n = self.n;
        let mut out = vec![0.0; n * n];
        for i in 0..n { for j in 0..n { out[j * n + i] = m[i * n + j]; } }
        out
    }

    /// For each x move: E over x' (laid out [y'][x])
    fn each_move(&self, next: &[f32], mut each: impl FnMut(usize, usize, &[f32; LANES])) {
        let flipped = self.transpose(next);
        let count = self.moves.len();
        let mut half = vec![0.0; self.n * self.n];
        for a in 0..count {
            self.smear(a, &flipped, |at, sum| half[at..at + LANES].copy_from_slice(sum));
            let across = self.transpose(&half);
            for b in 0..count {
                self.smear(b, &across, |at, sum| each(a * count + b, at, sum));
            }
        }
    }

    fn best(&self, next: &[f32]) -> (Vec<f32>, Vec<u16>) {
        let mut value = vec![f32::NEG_INFINITY; self.n * self.n];
        let mut policy = vec![0u16; self.n * self.n];
        self.each_move(next, |m, at, sum| {
            let v: &mut [f32; LANES] = (&mut value[at..at + LANES]).try_into().unwrap();
            let p: &mut [u16; LANES] = (&mut policy[at..at + LANES]).try_into().unwrap();
            for l in 0..LANES {
                let better = sum[l] > v[l];
                v[l] = if better { sum[l] } else { v[l] };
                p[l] = if better { m as u16 } else { p[l] };
            }
        });
        for (v, r) in value.iter_mut().zip(&self.reward) { *v += r; }
        (value, policy)
    }

    fn landing(&self, outside: &[f32], inside: &[f32], penalty: f32) -> Vec<f32> {
        (0..self.n * self.n).map(|i| (1.0 - self.danger[i]) * outside[i] + self.danger[i] * (inside[i] - penalty)).collect()
    }

    fn best_at_start(&self, next: &[f32]) -> (f64, u16) {
        let count = self.moves.len();
        let mut best = (f64::NEG_INFINITY, 0);
        for a in 0..count { for b in 0..count {
            let (kx, ky) = (&self.from_start[0][a], &self.from_start[1][b]);
            let mut q = 0.0;
            for (j, wy) in ky.weights.iter().enumerate() { for (i, wx) in kx.weights.iter().enumerate() {
                q += f64::from(wy * wx) * f64::from(next[(ky.first + j) * self.n + kx.first + i]);
            }}
            if q > best.0 { best = (q, (a * count + b) as u16); }
        }}
        (best.0 - distance(GOAL, START), best.1)
    }
}

/// A policy: [t][layer][cell]; at t = 0 the one first move.
#[derive(Clone)]
struct Policy { first: u16, table: Vec<Vec<Vec<u16>>> }

struct Free { values: Vec<Vec<f32>>, policy: Vec<Vec<u16>>, best: f64, first: u16 }

fn free(model: &Model) -> Free {
    let mut values = vec![vec![0.0; model.n * model.n]; HORIZON + 1];
    let mut policy = vec![Vec::new(); HORIZON];
    for t in (1..HORIZON).rev() {
        let (v, p) = model.best(&values[t + 1]);
        values[t] = v; policy[t] = p;
    }
    let (best, first) = model.best_at_start(&values[1]);
    Free { values, policy, best, first }
}

fn solve(model: &Model, free: &Free, allowed: usize, mu: f64) -> (Policy, f64) {
    let cells = model.n * model.n;
    let mut table = vec![vec![]; HORIZON];
    let mut values = vec![vec![0.0f32; cells]; allowed + 1];
    let landing = |values: &Vec<Vec<f32>>, t: usize, c: usize| if c == allowed { model.landing(&values[c], &free.values[t + 1], mu as f32) } else { model.landing(&values[c], &values[c + 1], 0.0) };
    for t in (1..HORIZON).rev() {
        let (vs, mut ps): (Vec<_>, Vec<_>) = (0..=allowed).map(|c| model.best(&landing(&values, t, c))).unzip();
        ps.push(free.policy[t].clone());
        table[t] = ps; values = vs;
    }
    let (best, first) = model.best_at_start(&landing(&values, 0, 0));
    (Policy { first, table }, best)
}

/// visits[t][layer][cell]
fn visits(model: &Model, policy: &Policy, allowed: usize) -> Vec<Vec<Vec<f64>>> {
    let (n, count) = (model.n, model.moves.len());
    let layers = allowed + 2;
    let mut all = vec![vec![vec![0.0; n * n]; layers]; HORIZON + 1];
    let spread = |into: &mut Vec<Vec<f64>>, c: usize, p: f64, kx: &Kernel, ky: &Kernel| {
        for (j, wy) in ky.weights.iter().enumerate() { for (i, wx) in kx.weights.iter().enumerate() {
            let at = (ky.first + j) * n + kx.first + i;
            let q = p * f64::from(*wy) * f64::from(*wx);
            let danger = f64::from(model.danger[at]);
            into[c][at] += q * (1.0 - danger);
            into[(c + 1).min(layers - 1)][at] += q * danger;
        }}
    };
    let m = policy.first as usize;
    spread(&mut all[1], 0, 1.0, &model.from_start[0][m / count], &model.from_start[1][m % count]);
    for t in 1..HORIZON {
        let (now, later) = all.split_at_mut(t + 1);
        for c in 0..layers { for at in 0..n * n {
            let p = now[t][c][at];
            if p > 1e-10 {
                let m = policy.table[t][c][at] as usize;
                spread(&mut later[0], c, p, &model.kernels[m / count][at % n], &model.kernels[m % count][at / n]);
            }
        }}
    }
    all
}

/// (return, violation share)
fn evaluate(model: &Model, visits: &[Vec<Vec<f64>>]) -> (f64, f64) {
    let mut total = -distance(GOAL, START);
    for at in &visits[1..HORIZON] { for layer in at {
        total += layer.iter().zip(&model.reward).map(|(p, r)| p * f64::from(*r)).sum::<f64>();
    }}
    (total, visits[HORIZON].last().unwrap().iter().sum())
}

fn simulate(model: &Model, policy: &Policy, allowed: usize, episodes: u64) -> [f64; 4] {
    let mut env = Navigation::new(&Settings::default()).unwrap();
    let mut at = [0.0; 2];
    let (mut sum, mut squares, mut safe) = (0.0, 0.0, 0.0);
    let count = model.moves.len();
    for seed in 0..episodes {
        env.reset(seed, &mut at).unwrap();
        let (mut total, mut c) = (0.0, 0usize);
        for t in 0..HORIZON {
            let m = if t == 0 { policy.first } else { policy.table[t][c.min(allowed + 1)][model.cell(at)] } as usize;
            total += env.step(&[model.moves[m / count], model.moves[m % count]], &mut at).unwrap().reward;
            c += usize::from(env.signals()[2] > 0.5);
        }
        sum += total; squares += total * total;
        safe += f64::from(u8::from(c <= allowed));
    }
    let n = episodes as f64;
    let (mean, share) = (sum / n, safe / n);
    [mean, ((squares / n - mean * mean) / n).sqrt(), share, (share * (1.0 - share) / n).sqrt()]
}

#[test]
fn explore() {
    let n: usize = std::env::var("N").map_or(100, |s| s.parse().unwrap());
    let m: usize = std::env::var("M").map_or(10, |s| s.parse().unwrap());
    let model = Model::new(n, m);
    let t0 = std::time::Instant::now();
    let free = free(&model);
    eprintln!("free {:.4} in {:?}", free.best, t0.elapsed());
    for allowed in [0, 1] {
        for mu in [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 500.0, 1000.0, 5000.0] {
            let t0 = std::time::Instant::now();
            let (policy, best) = solve(&model, &free, allowed, mu);
            let t1 = std::time::Instant::now();
            let v = visits(&model, &policy, allowed);
            let (r, p) = evaluate(&model, &v);
            let t2 = std::time::Instant::now();
            let s = simulate(&model, &policy, allowed, 20000);
            eprintln!("allowed {allowed} mu {mu:6} best {best:.3} check {:.3} return {r:.3} safe {:.4}  sim {:.3}±{:.3} {:.4}±{:.4}  {:?} {:?} {:?}", r - mu * p, 1.0 - p, s[0], s[1], s[2], s[3], t1 - t0, t2 - t1, t2.elapsed());
        }
    }
}
