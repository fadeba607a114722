//! Scoring around a safety model's networks: inputs, members, the floored running sum, the memory that agents see.

use super::loss::log_sigmoid;
use super::replay::see;
use super::{Buffer, Cpu};
use crate::Scalar;
use crate::work::{MemoryRows, Normalise, Pass, Units, floored};

pub(super) fn states<T: Scalar>(
    units: &Units<Cpu<T>>,
    observation: &[T],
    memory: Option<(&Buffer<T>, usize)>,
    state: &mut [T],
) {
    let s = units.observation_width;
    let width = s + memory.map_or(0, |(_, width)| width);
    let each = observation.len() / s / units.agents;
    for (i, (state, observation)) in state.chunks_exact_mut(width).zip(observation.chunks_exact(s)).enumerate() {
        see(units, i / each, observation, &mut state[..s]);
        if let Some((memory, width)) = memory {
            state[s..].copy_from_slice(&memory[i * width..][..width]);
        }
    }
}

pub(super) fn to_env<T: Scalar>(units: &Units<Cpu<T>>, action: &[T], out: &mut [T]) {
    let a = units.action_width;
    for (action, out) in action.chunks_exact(a).zip(out.chunks_exact_mut(a)) {
        let scaling = units.action_middle.iter().zip(&units.action_half);
        for ((out, a), (middle, half)) in out.iter_mut().zip(action).zip(scaling) {
            *out = *middle + *half * *a;
        }
    }
}

pub(super) fn normalise<T: Scalar>(n: &Normalise<'_, Cpu<T>>, out: &mut [T]) {
    let (s, a) = (n.observation_width, n.action_width);
    let width = s + a;
    for (replica, out) in out.chunks_exact_mut(n.rows * width).take(n.replicas).enumerate() {
        let (centre, scale) = (&n.centre[replica * width..][..width], &n.scale[replica * width..][..width]);
        let observations = n.observation[replica * n.rows * s..].chunks_exact(s);
        let actions = n.action[replica * n.rows * a..].chunks_exact(a);
        for ((out, observation), action) in out.chunks_exact_mut(width).zip(observations).zip(actions) {
            let values = observation.iter().chain(action);
            for (((out, x), centre), scale) in out.iter_mut().zip(values).zip(centre).zip(scale) {
                *out = (*x - *centre) * *scale;
            }
        }
    }
}

/// The minimum over the members: the log P of an ensemble is that of its most doubtful member.
pub(super) fn log_prob<T: Scalar>(pass: &Pass<Cpu<T>>, members: usize, out: &mut [T]) {
    let (rows, logits) = (pass.rows, pass.output());
    for (replica, out) in out.chunks_exact_mut(rows).take(pass.groups / members).enumerate() {
        let mut logits = logits[replica * members * rows..].chunks_exact(rows).take(members);
        let Some(first) = logits.next() else { continue };
        out.copy_from_slice(first);
        for other in logits {
            out.iter_mut().zip(other).for_each(|(least, x)| *least = least.min(*x));
        }
        log_sigmoid(out);
    }
}

pub(super) fn floor<T: Scalar>(log_prob: &[T], floor: f64, active: &[T], sum: &mut [T], score: &mut [T]) {
    let floor = T::of(floor);
    for (((log_prob, sum), score), active) in log_prob.iter().zip(sum).zip(score).zip(active) {
        if *active != T::ZERO {
            (*sum, *score) = floored(*sum, *log_prob, floor);
        }
    }
}

pub(super) fn memory<T: Scalar>(m: &MemoryRows<'_, Cpu<T>>, memory: &mut [T]) {
    let (width, rows) = (m.members * m.width + 1, m.rows / m.replicas);
    let floor = T::of(m.floor);
    for (row, memory) in memory.chunks_exact_mut(width).take(m.rows).enumerate() {
        let (replica, at) = (row / rows, row % rows);
        let (hidden, used) = memory.split_at_mut(width - 1);
        for (member, hidden) in hidden.chunks_exact_mut(m.width).enumerate() {
            hidden.copy_from_slice(&m.hidden[((replica * m.members + member) * rows + at) * m.width..][..m.width]);
        }
        used[0] = m.sum[row] / floor;
    }
}

/// See [`Device::spans`](crate::Device::spans).
pub(super) fn spans<T: Scalar>(column: &[T], width: usize, places: &[u32], [steps, rows]: [usize; 2], out: &mut [T]) {
    for (group, places) in places.chunks_exact(2 * rows).enumerate() {
        for t in 0..steps {
            for (n, [first, length]) in places.as_chunks::<2>().0.iter().enumerate() {
                let to = &mut out[((group * steps + t) * rows + n) * width..][..width];
                if t < *length as usize {
                    to.copy_from_slice(&column[(*first as usize + t) * width..][..width]);
                } else {
                    to.fill(T::ZERO);
                }
            }
        }
    }
}
