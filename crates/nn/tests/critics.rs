//! Critics' targets and losses, the policy's share of them, and the temperature: formulas and gradients, per agent and head.

mod common;

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{CriticTarget, Drawn, HeadPlace, Pass};
use prudence_nn::{Cpu, Device as _};

const AGENTS: usize = 2;
const ROWS: usize = 9;
/// A head of two networks and one of three.
const HEADS: [HeadPlace; 2] = [
    HeadPlace { index: 0, heads: 2, first: 0, networks: 2, of: 5 },
    HeadPlace { index: 1, heads: 2, first: 2, networks: 3, of: 5 },
];

/// Values of all critics, `[P, networks, rows]`, and a pass that has them as its output.
fn values() -> (Vec<f64>, Pass<Cpu<f64>>) {
    let values = numbers(51, AGENTS * 5 * ROWS, 1.0);
    let mut pass = pass_with_output(&values, AGENTS * 5, ROWS, 1);
    *pass.output_gradient() = unwritten(values.len());
    (values, pass)
}

/// The values of a head's networks for an agent at a row.
fn of_head(head: HeadPlace, values: &[f64], agent: usize, row: usize) -> impl Iterator<Item = f64> {
    let networks = head.first..head.first + head.networks;
    networks.map(move |network| values[(agent * head.of + network) * ROWS + row])
}

fn least(head: HeadPlace, values: &[f64], agent: usize, row: usize) -> f64 {
    of_head(head, values, agent, row).fold(f64::INFINITY, f64::min)
}

/// Where the values of a head's networks lie.
fn is_of_head(head: HeadPlace, i: usize) -> bool {
    (head.first..head.first + head.networks).contains(&(i / ROWS % head.of))
}

#[test]
fn the_target_is_signal_plus_the_discounted_value_of_what_follows() {
    let (d, (values, pass)) = (Cpu::new(), values());
    let n = AGENTS * ROWS;
    let (signal, log_prob, log_temperature) = (numbers(52, n, 1.0), numbers(53, n, 2.0), [-0.7, 0.4]);
    let not_terminal: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i % 3 != 0))).collect();
    let [signal_on, not_terminal_on, log_prob_on] = [&signal, &not_terminal, &log_prob].map(|x| buffer(x));
    let log_temperature_on = buffer(&log_temperature);
    for (head, soft, range) in [
        (HEADS[0], true, None),
        (HEADS[1], false, Some([-0.8, 0.0])),
        (HEADS[1], true, Some([-0.3, 0.2])),
        (HEADS[0], false, None),
    ] {
        let mut target = unwritten(n);
        let t = CriticTarget {
            head,
            pass: &pass,
            signal: &signal_on,
            not_terminal: &not_terminal_on,
            entropy: soft.then_some((&log_prob_on, &log_temperature_on)),
            discount: 0.9,
            range,
        };
        d.critic_target(t, &mut target);
        let mut clipped = [0, 0];
        for (i, y) in target.iter().enumerate() {
            let (agent, row) = (i / ROWS, i % ROWS);
            let entropy = if soft { log_temperature[agent].exp() * log_prob[i] } else { 0.0 };
            let exact = signal[i] + 0.9 * not_terminal[i] * (least(head, &values, agent, row) - entropy);
            let [low, high] = range.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
            clipped[0] += usize::from(exact < low);
            clipped[1] += usize::from(exact > high);
            assert!((y - exact.clamp(low, high)).abs() < 1e-14, "agent {agent}, row {row}: {y}, exact {exact}");
        }
        assert_eq!(clipped.iter().all(|n| *n > 0), range.is_some(), "both ends are reached: {clipped:?}");
    }
}

#[test]
fn the_loss_is_the_mean_squared_error_summed_over_the_heads_networks() {
    let d = Cpu::new();
    for head in HEADS {
        let (values, mut pass) = values();
        let target = numbers(62, AGENTS * ROWS, 2.0);
        let mut loss = unwritten(AGENTS);
        d.critic_loss(head, &buffer(&target), &mut pass, &mut loss);
        let of_agent = |values: &[f64], agent: usize| {
            let error = |row: usize| {
                of_head(head, values, agent, row).map(|q| (q - target[agent * ROWS + row]).powi(2)).sum::<f64>()
            };
            (0..ROWS).map(error).sum::<f64>() / ROWS as f64
        };
        for (agent, loss) in loss.iter().enumerate() {
            assert!((loss - of_agent(&values, agent)).abs() < 1e-14);
        }
        check_gradient(head, &pass.output_gradient()[..], &values, |values| {
            (0..AGENTS).map(|agent| of_agent(values, agent)).sum()
        });
    }
}

/// Compares the gradient by the head's values with central differences; the other heads' is not written.
#[track_caller]
fn check_gradient(head: HeadPlace, gradient: &[f64], values: &[f64], loss: impl Fn(&[f64]) -> f64) {
    let mut own = gradient.to_vec();
    for i in (0..own.len()).filter(|i| !is_of_head(head, *i)) {
        assert!(own[i].is_nan(), "number {i} is another head's");
        own[i] = 0.0;
    }
    assert_same_gradient(&own, values, loss);
}

#[test]
fn the_policys_objective_sends_the_gradient_to_the_smallest_critic_alone() {
    let (d, weights) = (Cpu::new(), [1.0, 0.7, 1.0, 12.0]);
    for head in HEADS {
        let (values, mut pass) = values();
        let mut value = unwritten(AGENTS);
        d.climb(head, &buffer(&weights), &mut pass, &mut value);
        let mean = |values: &[f64], agent: usize| {
            (0..ROWS).map(|row| least(head, values, agent, row)).sum::<f64>() / ROWS as f64
        };
        for (agent, value) in value.iter().enumerate() {
            assert!((value - mean(&values, agent)).abs() < 1e-15);
        }
        let gradient = pass.output_gradient().to_vec();
        for network in 0..head.networks {
            let own = &gradient[(head.first + network) * ROWS..][..ROWS];
            assert!(own.contains(&0.0) && own.iter().any(|g| *g != 0.0), "every network must win somewhere: {own:?}");
        }
        check_gradient(head, &gradient, &values, |values| {
            let share = |agent: usize| weights[agent * 2 + head.index] / (weights[agent * 2] + weights[agent * 2 + 1]);
            (0..AGENTS).map(|agent| -share(agent) * mean(values, agent)).sum()
        });
    }
}

#[test]
fn a_tie_of_critics_is_counted_once() {
    let (d, head) = (Cpu::new(), HeadPlace { index: 0, heads: 1, first: 0, networks: 2, of: 2 });
    let (mut pass, mut value) = (pass_with_output(&[2.0, 2.0], 2, 1, 1), unwritten(1));
    d.climb(head, &buffer(&[1.0]), &mut pass, &mut value);
    assert_eq!((pass.output_gradient()[..].to_vec(), value[0]), (vec![-1.0, 0.0], 2.0));
}

#[test]
fn the_temperatures_gradient_is_that_of_its_objective() {
    let (d, rows, target_entropy) = (Cpu::<f64>::new(), 11, -1.6);
    let log_temperature = [-0.9, 0.2, 0.0];
    let log_prob = numbers(71, 3 * rows, 2.0);
    let drawn = Drawn::<Cpu<f64>> { action: Buffer::zeros(0), log_prob: buffer(&log_prob) };
    let [mut gradient, mut entropy] = [3, 3].map(unwritten);
    d.temperature_gradient(&buffer(&log_temperature), &drawn, target_entropy, &mut gradient, &mut entropy);
    let mean = |agent: usize| log_prob[agent * rows..][..rows].iter().sum::<f64>() / rows as f64;
    assert_same_gradient(&gradient, &log_temperature, |log_temperature| {
        (0..3).map(|agent| -log_temperature[agent].exp() * (mean(agent) + target_entropy)).sum()
    });
    for (agent, entropy) in entropy.iter().enumerate() {
        assert!((entropy + mean(agent)).abs() < 1e-15);
    }
}
