//! Batches out of replay tables, and what surrounds a safety model's networks.

mod common;

use common::*;
use proptest::prelude::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::*;
use prudence_nn::{Cpu, Device as _};

const S: usize = 3;
const A: usize = 2;
const M: usize = 4;
const FLOOR: f64 = -2.5;

fn units() -> Units<Cpu<f64>> {
    Units {
        agents: 2,
        observation_centre: buffer(&[0.5, -1.0, 2.0, 1.5, -2.0, 3.0]),
        observation_scale: buffer(&[0.005, 0.02, 0.0025, 0.001, 0.0, 0.003]),
        reward_centre: buffer(&[3.0, -4.0]),
        reward_scale: buffer(&[0.1, 0.2]),
        action_middle: buffer(&[1.0, -0.5]),
        action_half: buffer(&[2.0, 0.25]),
        observation_width: S,
        action_width: A,
    }
}

/// A table whose numbers name their row: every column of row r holds `100 r` and something below 100.
fn table(seed: u64, rows: usize) -> Table<Cpu<f64>> {
    let column = |i: u64, width: usize| {
        let small = numbers(seed + i, rows * width, 40.0);
        buffer(&small.iter().enumerate().map(|(at, x)| (at / width * 100) as f64 + x + 50.0).collect::<Vec<_>>())
    };
    Table {
        observation: column(0, S),
        memory: column(1, M),
        action: buffer(&numbers(seed + 2, rows * A, 3.0)),
        reward: column(3, 1),
        score: column(4, 1),
        not_terminal: column(5, 1),
        capacity: rows,
    }
}

#[test]
fn a_batch_holds_the_transitions_at_its_rows() {
    let (d, population, size, shared_rows, ring) = (Cpu::<f64>::new(), 2, 5, 11, 6);
    let (shared, own, units) = (table(1, shared_rows), table(11, population * ring), units());
    let last = (shared_rows + ring - 1) as u32; // the row after it is the ring's first
    let rows = vec![0, 9, 11, 14, last, 3, 11, last, 16, 9];
    for history in [true, false] {
        let width = S + if history { M } else { 0 };
        let replay = Tables { shared: &shared, own: &own, population, units: &units, memory_width: M, history };
        let mut batch = Batch::new(&d, population, size, width, A).unwrap();
        d.gather(&replay, &rows, &mut batch);
        for (i, row) in rows.iter().map(|row| *row as usize).enumerate() {
            let base = i / size * ring;
            let (table, row, next) = match row.checked_sub(shared_rows) {
                None => (&shared, row, row + 1),
                Some(row) => (&own, base + row, base + (row + 1) % ring),
            };
            let agent = i / size;
            let state = |row: usize| -> Vec<f64> {
                let scaled = |k: usize| {
                    let centre = units.observation_centre[agent * S + k];
                    ((table.observation[row * S + k] - centre) * units.observation_scale[agent * S + k])
                        .clamp(-10.0, 10.0)
                };
                let memory = &table.memory[row * M..][..width - S];
                (0..S).map(scaled).chain(memory.iter().copied()).collect()
            };
            let in_unit = |k: usize| {
                let a = (table.action[row * A + k] - units.action_middle[k]) / units.action_half[k];
                a.clamp(-1.0, 1.0)
            };
            assert_eq!(batch.state[i * width..][..width], state(row), "transition {i}");
            assert_eq!(batch.next_state[i * width..][..width], state(next), "transition {i}");
            assert_eq!(batch.action[i * A..][..A], [in_unit(0), in_unit(1)], "transition {i}");
            assert_eq!(batch.reward[i], (table.reward[row] - units.reward_centre[agent]) * units.reward_scale[agent]);
            assert_eq!((batch.score[i], batch.not_terminal[i]), (table.score[row], table.not_terminal[row]));
        }
    }
}

#[test]
fn networks_see_the_states_while_acting_that_batches_hold() {
    let (d, rows, units) = (Cpu::<f64>::new(), 10, units());
    let (shared, own) = (table(1, rows + 1), table(2, 2));
    let replay = Tables { shared: &shared, own: &own, population: 2, units: &units, memory_width: M, history: true };
    let mut batch = Batch::new(&d, 2, rows / 2, S + M, A).unwrap();
    d.gather(&replay, &(0..rows as u32).collect(), &mut batch);
    let mut state = unwritten(rows * (S + M));
    let mut observation = unwritten(rows * S);
    d.copy(&shared.observation, 0, &mut observation, 0, rows * S);
    d.see(&units, &observation, Some((&shared.memory, M)), &mut state);
    assert_eq!(state[..], batch.state[..]);
    let mut without = unwritten(rows * S);
    d.see(&units, &observation, None, &mut without);
    assert!(without.chunks_exact(S).zip(state.chunks_exact(S + M)).all(|(a, b)| *a == b[..S]));
}

#[test]
fn actions_come_back_from_the_environments_units() {
    let (d, units, rows) = (Cpu::<f64>::new(), units(), 7);
    let action: Buffer<f64> = buffer(&numbers(9, rows * A, 1.0));
    let [mut in_env, mut shared] = [unwritten(rows * A), unwritten(rows * A)];
    d.to_env(&units, &action, &mut in_env);
    let mut table = table(1, rows);
    std::mem::swap(&mut table.action, &mut in_env);
    let own = Table::new(&d, 1, S, M, A).unwrap();
    let replay = Tables { shared: &table, own: &own, population: 1, units: &units, memory_width: M, history: false };
    let mut batch = Batch::new(&d, 1, rows - 1, S, A).unwrap();
    d.gather(&replay, &(0..rows as u32 - 1).collect(), &mut batch);
    d.copy(&batch.action, 0, &mut shared, 0, (rows - 1) * A);
    for (seen, exact) in shared.iter().zip(&action).take((rows - 1) * A) {
        assert!((seen - exact).abs() < 1e-15, "{seen} != {exact}");
    }
}

#[test]
fn each_replica_normalises_by_its_own_moments() {
    let (d, replicas, rows, width) = (Cpu::<f64>::new(), 3, 4, S + A);
    let [observation, action] = [(1, S), (2, A)].map(|(seed, width)| numbers(seed, replicas * rows * width, 2.0));
    let [centre, scale] = [3, 4].map(|seed| numbers(seed, replicas * width, 1.0));
    let n = Normalise {
        observation: &buffer(&observation),
        action: &buffer(&action),
        observation_width: S,
        action_width: A,
        centre: &buffer(&centre),
        scale: &buffer(&scale),
        replicas,
        rows,
    };
    let mut out = unwritten(replicas * rows * width);
    d.normalise(n, &mut out);
    for (i, seen) in out.iter().enumerate() {
        let (row, k) = (i / width, i % width);
        let x = if k < S { observation[row * S + k] } else { action[row * A + k - S] };
        let of = row / rows * width + k;
        assert_eq!(*seen, (x - centre[of]) * scale[of], "row {row}, number {k}");
    }
}

#[test]
fn memories_lie_beside_the_used_share() {
    let (d, replicas, members, width, rows) = (Cpu::<f64>::new(), 2, 3, 4, 6);
    let hidden: Buffer<f64> = buffer(&numbers(5, rows * members * width, 1.0));
    let sum: Vec<f64> = numbers(6, rows, 1.0).iter().map(|x| x.abs() * FLOOR).collect();
    let m = MemoryRows { hidden: &hidden, sum: &buffer(&sum), floor: FLOOR, replicas, members, width, rows };
    let mut memory = unwritten(rows * (members * width + 1));
    d.memory(m, &mut memory);
    let each = rows / replicas;
    for (row, memory) in memory.chunks_exact(members * width + 1).enumerate() {
        for member in 0..members {
            let at = (row / each * members + member) * each + row % each;
            assert_eq!(memory[member * width..][..width], hidden[at * width..][..width], "row {row}, member {member}");
        }
        assert_eq!(memory[members * width], sum[row] / FLOOR);
    }
}

proptest! {
    /// Scores add up to the floored sum, are never positive, and nothing counts below the floor.
    #[test]
    fn scores_add_up_to_a_sum_that_never_falls_below_the_floor(
        log_probs in prop::collection::vec(prop_oneof![-1e-3..0.0f32, -3.0..0.0f32, -50.0..0.0f32], 1..60),
        floor in -10.0..-0.5f64,
    ) {
        let d = Cpu::<f32>::new();
        // Row 1 is inactive: its numbers stay.
        let (active, mut sum, mut score) = (buffer(&[1.0, 0.0]), buffer(&[0.0, -0.25]), buffer(&[0.0, 7.0]));
        let (mut total, mut exact) = (0.0f64, 0.0f64);
        for log_prob in log_probs {
            d.floor(&Buffer::from(&[log_prob, log_prob][..]), floor, &active, &mut sum, &mut score);
            exact = (exact + f64::from(log_prob)).max(f64::from(floor as f32));
            total += f64::from(score[0]);
            prop_assert!(log_prob - 1e-6 <= score[0] && score[0] <= 0.0, "{} for {log_prob}", score[0]);
            prop_assert!(sum[0] >= floor as f32);
            prop_assert!((f64::from(sum[0]) - exact).abs() < 1e-5);
            prop_assert!((total - exact).abs() < 1e-5);
            prop_assert_eq!((sum[1], score[1]), (-0.25, 7.0));
            let mut memory = unwritten(4);
            let hidden = Buffer::zeros(2);
            let m = MemoryRows { hidden: &hidden, sum: &sum, floor, replicas: 1, members: 1, width: 1, rows: 2 };
            d.memory(m, &mut memory);
            prop_assert!((f64::from(memory[1]) - exact / floor).abs() < 1e-5 && (0.0..=1.0).contains(&memory[1]));
        }
    }
}
