//! Targets, losses and gradients of critics, and the policy's and the temperature's objectives.

use super::Cpu;
use crate::Scalar;
use crate::work::{CriticTarget, Drawn, HeadPlace, Pass};

/// The values of a head's networks for agent `p`: `[networks, rows]`.
fn of_head<T>(head: HeadPlace, p: usize, rows: usize, values: &[T]) -> &[T] {
    &values[(p * head.of + head.first) * rows..][..head.networks * rows]
}

fn of_head_mut<T>(head: HeadPlace, p: usize, rows: usize, values: &mut [T]) -> &mut [T] {
    &mut values[(p * head.of + head.first) * rows..][..head.networks * rows]
}

/// The smallest of the head's values at a row, and the index of its network: the first one if several are equal.
fn minimum<T: Scalar>(values: &[T], row: usize, rows: usize) -> (T, usize) {
    let mut least = (values[row], 0);
    for (network, values) in values.chunks_exact(rows).enumerate().skip(1) {
        // A NaN of the first network is not replaced, so that divergence stays visible.
        if least.0 > values[row] {
            least = (values[row], network);
        }
    }
    least
}

pub(super) fn target<T: Scalar>(t: CriticTarget<'_, Cpu<T>>, target: &mut [T]) {
    let (rows, discount) = (t.pass.rows, T::of(t.discount));
    for (p, target) in target.chunks_exact_mut(rows).enumerate() {
        let q = of_head(t.head, p, rows, t.pass.output());
        for (row, y) in target.iter_mut().enumerate() {
            let i = p * rows + row;
            let mut value = minimum(q, row, rows).0;
            if let Some((log_prob, log_temperature)) = t.entropy {
                value -= log_temperature[p].exp() * log_prob[i];
            }
            *y = t.signal[i] + discount * t.not_terminal[i] * value;
            if let Some([low, high]) = t.range {
                *y = y.max(T::of(low)).min(T::of(high));
            }
        }
    }
}

pub(super) fn loss<T: Scalar>(head: HeadPlace, target: &[T], pass: &mut Pass<Cpu<T>>, loss: &mut [T]) {
    let rows = pass.rows;
    let scale = T::of(1.0 / rows as f64);
    let last = pass.activations.len() - 1;
    for (p, loss) in loss.iter_mut().enumerate() {
        let target = &target[p * rows..][..rows];
        let q = of_head(head, p, rows, &pass.activations[last]);
        let gradient = of_head_mut(head, p, rows, &mut pass.gradients[last]);
        *loss = T::ZERO;
        for (q, gradient) in q.chunks_exact(rows).zip(gradient.chunks_exact_mut(rows)) {
            let mut sum = T::ZERO;
            for ((q, y), g) in q.iter().zip(target).zip(gradient) {
                let error = *q - *y;
                sum += error * error;
                *g = T::of(2.0) * scale * error;
            }
            *loss += sum * scale;
        }
    }
}

pub(super) fn climb<T: Scalar>(head: HeadPlace, weights: &[T], pass: &mut Pass<Cpu<T>>, value: &mut [T]) {
    let rows = pass.rows;
    let mean = T::of(1.0 / rows as f64);
    let last = pass.activations.len() - 1;
    for (p, value) in value.iter_mut().enumerate() {
        let weights = &weights[p * head.heads..][..head.heads];
        let total = weights[1..].iter().fold(weights[0], |sum, w| sum + *w);
        let weight = weights[head.index] * (T::ONE / total) * mean;
        let q = of_head(head, p, rows, &pass.activations[last]);
        let gradient = of_head_mut(head, p, rows, &mut pass.gradients[last]);
        gradient.fill(T::ZERO);
        let mut sum = T::ZERO;
        for row in 0..rows {
            let (least, network) = minimum(q, row, rows);
            gradient[network * rows + row] = -weight; // negative: the objective is maximised
            sum += least;
        }
        *value = sum * mean;
    }
}

pub(super) fn temperature<T: Scalar>(
    log_temperature: &[T],
    drawn: &Drawn<Cpu<T>>,
    target_entropy: f64,
    gradient: &mut [T],
    entropy: &mut [T],
) {
    let rows = drawn.log_prob.len() / log_temperature.len();
    let mean = T::of(1.0 / rows as f64);
    for (p, log_temperature) in log_temperature.iter().enumerate() {
        let log_prob: T = drawn.log_prob[p * rows..][..rows].iter().copied().sum();
        gradient[p] = -log_temperature.exp() * (log_prob * mean + T::of(target_entropy));
        entropy[p] = -(log_prob * mean);
    }
}
