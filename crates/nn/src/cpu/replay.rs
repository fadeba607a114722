//! Gathers transitions from replay tables.

use super::Cpu;
use crate::Scalar;
use crate::work::{Appended, Batch, SEEN, Scored, Table, Tables, Units};

/// A row of one of the tables, and the next row of its episode.
struct Place<'a, T: Scalar> {
    table: &'a Table<Cpu<T>>,
    row: usize,
    next: usize,
}

fn place<'a, T: Scalar>(replay: &Tables<'a, Cpu<T>>, agent: usize, row: u32) -> Place<'a, T> {
    let (row, shared) = (row as usize, replay.shared.capacity);
    if row < shared {
        return Place { table: replay.shared, row, next: row + 1 };
    }
    let ring = replay.own.capacity / replay.population;
    let (row, base) = (row - shared, agent * ring);
    Place { table: replay.own, row: base + row, next: base + (row + 1) % ring }
}

/// Converts an agent's observation to its networks' units.
pub(super) fn see<T: Scalar>(units: &Units<Cpu<T>>, agent: usize, observation: &[T], out: &mut [T]) {
    let (s, largest) = (units.observation_width, T::of(SEEN));
    let of_agent = agent * s..(agent + 1) * s;
    let scaling = units.observation_centre[of_agent.clone()].iter().zip(&units.observation_scale[of_agent]);
    for ((out, x), (centre, scale)) in out.iter_mut().zip(observation).zip(scaling) {
        *out = ((*x - *centre) * *scale).max(-largest).min(largest);
    }
}

/// Scales an action to the policy's units, [-1, 1].
fn to_unit<T: Scalar>(units: &Units<Cpu<T>>, action: &[T], out: &mut [T]) {
    let scaling = units.action_middle.iter().zip(&units.action_half);
    for ((out, a), (middle, half)) in out.iter_mut().zip(action).zip(scaling) {
        *out = ((*a - *middle) / *half).max(-T::ONE).min(T::ONE);
    }
}

fn state<T: Scalar>(replay: &Tables<'_, Cpu<T>>, agent: usize, table: &Table<Cpu<T>>, row: usize, out: &mut [T]) {
    let (s, m) = (replay.units.observation_width, replay.memory_width);
    let (observation, memory) = out.split_at_mut(s);
    see(replay.units, agent, &table.observation[row * s..][..s], observation);
    if replay.history {
        memory.copy_from_slice(&table.memory[row * m..][..m]);
    }
}

/// Sampled rows are spread over a table that is much larger than the caches, so rows are prefetched this many
/// transitions ahead.
const AHEAD: usize = 8;

fn prefetch<T: Scalar>(replay: &Tables<'_, Cpu<T>>, agent: usize, row: u32) {
    let Place { table, row, .. } = place(replay, agent, row);
    let (s, a, m) = (replay.units.observation_width, replay.units.action_width, replay.memory_width);
    fetch_lines(&table.observation, row * s, 2 * s);
    if replay.history {
        fetch_lines(&table.memory, row * m, 2 * m);
    }
    for (column, width) in [(&table.action, a), (&table.reward, 1), (&table.score, 1), (&table.not_terminal, 1)] {
        fetch_lines(column, row * width, width);
    }
}

/// Prefetches the cache lines of `n` numbers, starting at position `at`.
#[allow(unsafe_code, reason = "a hint to the processor; it reads nothing")]
fn fetch_lines<T>(column: &[T], at: usize, n: usize) {
    #[cfg(target_arch = "x86_64")]
    for number in column[at.min(column.len())..(at + n).min(column.len())].iter().step_by(64 / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(number).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (column, at, n);
}

pub(super) fn gather<T: Scalar>(replay: &Tables<'_, Cpu<T>>, rows: &[u32], batch: &mut Batch<Cpu<T>>) {
    let a = replay.units.action_width;
    let width = batch.state.len() / batch.reward.len();
    for (i, row) in rows.iter().enumerate() {
        if let Some(later) = rows.get(i + AHEAD) {
            prefetch(replay, (i + AHEAD) / batch.size, *later);
        }
        let agent = i / batch.size;
        let Place { table, row, next } = place(replay, agent, *row);
        state(replay, agent, table, row, &mut batch.state[i * width..][..width]);
        state(replay, agent, table, next, &mut batch.next_state[i * width..][..width]);
        to_unit(replay.units, &table.action[row * a..][..a], &mut batch.action[i * a..][..a]);
        batch.reward[i] = (table.reward[row] - replay.units.reward_centre[agent]) * replay.units.reward_scale[agent];
        batch.score[i] = table.score[row];
        batch.not_terminal[i] = table.not_terminal[row];
    }
}

pub(super) fn append<T: Scalar>(steps: &Appended<Cpu<T>>, scores: Option<Scored<'_, Cpu<T>>>, own: &mut Table<Cpu<T>>) {
    let width = |column: &[T]| column.len() / steps.population;
    let (s, a) = (width(&steps.next_observation), width(&steps.action));
    let m = scores.as_ref().map_or(0, |scores| width(scores.memory));
    for (agent, [row, next]) in steps.rows.as_chunks::<2>().0.iter().enumerate() {
        if *row != u32::MAX {
            let row = *row as usize;
            own.action[row * a..][..a].copy_from_slice(&steps.action[agent * a..][..a]);
            own.reward[row] = steps.reward[agent];
            own.not_terminal[row] = steps.not_terminal[agent];
            if let Some(scores) = &scores {
                own.score[row] = scores.score[agent];
            }
        }
        if *next != u32::MAX {
            let next = *next as usize;
            own.observation[next * s..][..s].copy_from_slice(&steps.next_observation[agent * s..][..s]);
            if let Some(scores) = &scores {
                own.memory[next * m..][..m].copy_from_slice(&scores.memory[agent * m..][..m]);
            }
        }
    }
}
