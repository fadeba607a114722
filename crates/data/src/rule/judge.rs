//! Evaluates a rule over a trajectory, step by step.

use std::sync::Arc;

use super::program::{Aggregate, Node};

/// Judges one trajectory from the signals of each step in turn.
#[derive(Clone, Debug)]
pub struct Judge {
    program: Arc<[Node]>,
    values: Vec<Option<f64>>, // of each node at this step: a condition is 1 or 0, `None` is undefined
    memories: Vec<Memory>,    // of each aggregate
    safe: bool,
}

impl Judge {
    pub(super) fn new(program: Arc<[Node]>) -> Judge {
        let memories = program.iter().filter_map(|node| match node {
            Node::Aggregate(Aggregate::Mean(n) | Aggregate::Fraction(n) | Aggregate::CountLast(n), ..) => {
                Some(Memory::Window(Window::new(*n)))
            }
            Node::Aggregate(Aggregate::Count | Aggregate::Run, ..) => Some(Memory::Counter(0.0)),
            _ => None,
        });
        Judge { values: vec![None; program.len()], memories: memories.collect(), safe: true, program }
    }

    /// Takes the signals of the next step and returns whether the rule holds at that step. A missing signal counts as
    /// not finite.
    pub fn step(&mut self, signals: &[f64]) -> bool {
        let mut finite = true;
        for (i, node) in self.program.iter().enumerate() {
            let values = &self.values;
            let value = match *node {
                Node::Number(number) => Some(number),
                Node::Signal(signal) => Some(signals.get(signal).copied().unwrap_or(f64::NAN)),
                Node::Negate(a) => values[a].map(|a| -a),
                Node::Abs(a) => values[a].map(f64::abs),
                Node::Arithmetic(op, a, b) => values[a].zip(values[b]).map(|(a, b)| op.apply(a, b)),
                Node::Compare(op, a, b) => values[a].zip(values[b]).map(|(a, b)| op.holds(a, b).into()),
                Node::Not(a) => truth(values[a]).map(|a| (!a).into()),
                Node::And(a, b) => match (truth(values[a]), truth(values[b])) {
                    (Some(false), _) | (_, Some(false)) => Some(0.0),
                    (Some(true), Some(true)) => Some(1.0),
                    _ => None,
                },
                Node::Or(a, b) => match (truth(values[a]), truth(values[b])) {
                    (Some(true), _) | (_, Some(true)) => Some(1.0),
                    (Some(false), Some(false)) => Some(0.0),
                    _ => None,
                },
                Node::Aggregate(aggregate, a, memory) => self.memories[memory].take(aggregate, values[a]),
            };
            finite &= value.is_none_or(f64::is_finite);
            self.values[i] = value;
        }
        let holds = finite && self.values.last().copied().flatten() != Some(0.0);
        self.safe &= holds;
        holds
    }

    /// Whether the rule has held at every step so far.
    pub fn safe(&self) -> bool {
        self.safe
    }

    /// Starts a new trajectory.
    pub fn reset(&mut self) {
        self.safe = true;
        self.memories.iter_mut().for_each(|memory| match memory {
            Memory::Window(window) => window.reset(),
            Memory::Counter(count) => *count = 0.0,
        });
    }
}

fn truth(value: Option<f64>) -> Option<bool> {
    value.map(|value| value != 0.0)
}

#[derive(Clone, Debug)]
enum Memory {
    Window(Window),
    Counter(f64),
}

impl Memory {
    /// Takes the operand's `value` at this step and returns the aggregate's. An operand is always defined, since
    /// aggregates do not nest.
    fn take(&mut self, aggregate: Aggregate, value: Option<f64>) -> Option<f64> {
        let holds = f64::from(truth(value).unwrap_or(false));
        match (self, aggregate) {
            (Memory::Window(window), Aggregate::Mean(n)) => {
                let sum = window.push(value.unwrap_or(f64::NAN));
                window.is_full().then(|| sum / n as f64)
            }
            (Memory::Window(window), Aggregate::Fraction(n)) => Some(window.push(holds) / n as f64),
            (Memory::Window(window), _) => Some(window.push(holds)),
            (Memory::Counter(run), Aggregate::Run) => {
                *run = (*run + 1.0) * holds;
                Some(*run)
            }
            (Memory::Counter(count), _) => {
                *count += holds;
                Some(*count)
            }
        }
    }
}

/// The sum of the last n numbers, computed without subtraction, so that a number that has left the window leaves
/// neither rounding errors nor a NaN behind. Each block of n numbers is summed once, so a step takes constant time on
/// average.
#[derive(Clone, Debug)]
struct Window {
    /// Before `at`: the numbers of this block. From `at` on: suffix sums of the previous block, `sums[i]` over `i..n`.
    sums: Vec<f64>,
    at: usize,
    /// The sum of the numbers of this block.
    block: f64,
    /// Whether there was a block before this one.
    second: bool,
}

impl Window {
    fn new(n: usize) -> Window {
        Window { sums: vec![0.0; n], at: 0, block: 0.0, second: false }
    }

    /// Takes the next number and returns the sum of the last n, or of all numbers if there are fewer.
    fn push(&mut self, number: f64) -> f64 {
        let n = self.sums.len();
        if self.at == n {
            for i in (0..n - 1).rev() {
                self.sums[i] += self.sums[i + 1];
            }
            (self.at, self.block, self.second) = (0, 0.0, true);
        }
        self.sums[self.at] = number;
        self.at += 1;
        self.block += number;
        if self.second && self.at < n { self.sums[self.at] + self.block } else { self.block }
    }

    fn is_full(&self) -> bool {
        self.second || self.at == self.sums.len()
    }

    fn reset(&mut self) {
        (self.at, self.block, self.second) = (0, 0.0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn the_window_sum_equals_the_naive_sum_over_100k_steps() {
        // Large numbers among small ones, so that leftover rounding errors would show.
        let number = |i: usize| (i as f64 * 0.7).sin() * if i.is_multiple_of(997) { 1e9 } else { 1.0 };
        let numbers: Vec<f64> = (0..100_000).map(number).collect();
        for n in [1, 2, 3, 50, 1000] {
            let mut window = Window::new(n);
            for (i, number) in numbers.iter().enumerate() {
                let last = &numbers[(i + 1).saturating_sub(n)..=i];
                let (naive, scale) = (last.iter().sum::<f64>(), last.iter().map(|x| x.abs()).sum::<f64>());
                assert!((window.push(*number) - naive).abs() <= 1e-9 * scale.max(1.0), "n = {n}, step {i}");
                assert_eq!(window.is_full(), i + 1 >= n);
            }
        }
    }
}
