//! SafeSAC: one update, top to bottom as in the paper's listing.
//!
//! Written once for a population of P agents that share nothing: every array has P leading, on a CPU P is 1. The critics
//! are one bank: for each agent Q_R1, Q_R2, Q_psi1, Q_psi2 (SAC has only the first two). The update is a function of the
//! state, a batch and noise; it draws nothing itself and allocates nothing (the matrix library packs into buffers of its own).

use prudence_nn::gaussian::{self, LogStd};
use prudence_nn::loss::{mse, twin_min, twin_min_backward};
use prudence_nn::{Adam, AdamSettings, Mlp, MlpWork, Scalar, kernels};
use rand::Rng;
use rand_distr::{Distribution as _, StandardNormal};
use serde::{Deserialize, Serialize};

use crate::settings::AgentSettings;

/// The sizes a learner is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// What policy and critics see of a step: observation and, with history, memory.
    pub state: usize,
    /// Numbers of an action.
    pub action: usize,
    /// Agents.
    pub population: usize,
    /// Whether there is a safety critic.
    pub safety: bool,
}

/// Transitions and the noise of one update, P leading. A new one each update is not needed: fill it again.
#[derive(Clone, Debug)]
pub struct Batch<T> {
    /// `[P, B, state]`: s, h
    pub state: Vec<T>,
    /// `[P, B, action]`, in [-1, 1]
    pub action: Vec<T>,
    /// `[P, B]`, scaled
    pub reward: Vec<T>,
    /// `[P, B]`: how far the floored running sum of log P fell
    pub score: Vec<T>,
    /// `[P, B, state]`: s', h'
    pub next_state: Vec<T>,
    /// `[P, B]`: 0 where the task ended, 1 elsewhere (the horizon is no end)
    pub goes_on: Vec<T>,
    /// `[P, B, action]`, standard normal: for the actions at s' and at s
    pub noise: [Vec<T>; 2],
}

impl<T: Scalar> Batch<T> {
    /// Room for `batch` transitions an agent.
    pub fn new(d: Dimensions, batch: usize) -> Self {
        let n = d.population * batch;
        let zeros = |width: usize| vec![T::ZERO; n * width];
        Self {
            state: zeros(d.state),
            action: zeros(d.action),
            reward: zeros(1),
            score: zeros(1),
            next_state: zeros(d.state),
            goes_on: zeros(1),
            noise: [zeros(d.action), zeros(d.action)],
        }
    }

    /// Draws the noise anew.
    pub fn draw_noise(&mut self, rng: &mut impl Rng) {
        for noise in &mut self.noise {
            for e in noise {
                let x: f32 = StandardNormal.sample(rng);
                *e = T::of(f64::from(x));
            }
        }
    }
}

/// What an update says about itself (means over the population).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Mean of the smaller reward critic at the policy's actions.
    pub q_reward: f64,
    /// Mean of the smaller safety critic at the policy's actions.
    pub q_safety: f64,
    /// Loss of the reward critics, summed over the twins.
    pub reward_critic_loss: f64,
    /// Loss of the safety critics, summed over the twins.
    pub safety_critic_loss: f64,
    /// Mean of -log pi.
    pub entropy: f64,
}

/// The networks, their optimisers and the room they work in.
pub struct Learner<T> {
    dimensions: Dimensions,
    batch: usize,
    discount: T,
    polyak: f64,
    averaging: T,
    floor: T,
    target_entropy: T,
    clip: LogStd,
    policy_shape: Mlp,
    critic_shape: Mlp,
    /// `[P, parameters]`
    pub policy: Vec<T>,
    /// The running average of the policy: what is tested.
    pub averaged_policy: Vec<T>,
    /// `[P, 2 or 4, parameters]`
    pub critics: Vec<T>,
    /// What the critics' targets are made with.
    pub target_critics: Vec<T>,
    /// `[P]`: the logarithm of alpha
    pub log_temperature: Vec<T>,
    /// In the order policy, critics, temperature.
    pub optimisers: [Adam<T>; 3],
    work: Work<T>,
}

struct Work<T> {
    policy: MlpWork<T>,
    critics: MlpWork<T>,
    policy_gradients: Vec<T>,
    critic_gradients: Vec<T>,
    temperature_gradients: Vec<T>,
    /// `[P, B, state + action]`
    critic_input: Vec<T>,
    /// `[P, B, action]`
    actions: Vec<T>,
    action_gradient: Vec<T>,
    /// `[P, critics, B, action]`
    critic_action_gradient: Vec<T>,
    /// `[P, B]`
    log_prob: Vec<T>,
    /// `[P, 2, B]`: y_R and y_psi, or both minima
    targets: Vec<T>,
}

impl<T: Scalar> Learner<T> {
    /// Fresh networks, drawn from `rng`.
    pub fn new(d: Dimensions, settings: &AgentSettings, rng: &mut impl Rng) -> Self {
        let (p, b) = (d.population, settings.batch);
        let twins = d.critics();
        let policy_shape = Mlp::new(d.state, &settings.hidden, 2 * d.action);
        let critic_shape = Mlp::new(d.state + d.action, &settings.hidden, 1);
        let init = |shape: &Mlp, groups: usize, rng: &mut _| {
            let mut parameters = vec![T::ZERO; groups * shape.parameters()];
            parameters.chunks_exact_mut(shape.parameters()).for_each(|one| shape.init(one, rng));
            parameters
        };
        let policy = init(&policy_shape, p, &mut *rng);
        let critics = init(&critic_shape, p * twins, rng);
        let zeros = |n: usize| vec![T::ZERO; n];
        let adam = |n: usize| Adam::new(n, AdamSettings::default());
        Self {
            dimensions: d,
            batch: b,
            discount: T::of(settings.discount),
            polyak: settings.polyak,
            averaging: T::of(settings.averaging),
            floor: T::of(settings.score_floor),
            target_entropy: T::of(settings.entropy * d.action as f64),
            clip: settings.log_std(),
            averaged_policy: policy.clone(),
            target_critics: critics.clone(),
            log_temperature: vec![T::of(settings.temperature.ln()); p],
            optimisers: [adam(policy.len()), adam(critics.len()), adam(p)],
            work: Work {
                policy: MlpWork::new(&policy_shape, p, b),
                critics: MlpWork::new(&critic_shape, p * twins, b),
                policy_gradients: zeros(policy.len()),
                critic_gradients: zeros(critics.len()),
                temperature_gradients: zeros(p),
                critic_input: zeros(p * b * (d.state + d.action)),
                actions: zeros(p * b * d.action),
                action_gradient: zeros(p * b * d.action),
                critic_action_gradient: zeros(p * twins * b * d.action),
                log_prob: zeros(p * b),
                targets: zeros(p * 2 * b),
            },
            policy_shape,
            critic_shape,
            policy,
            critics,
        }
    }

    /// The sizes it was made for.
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// The shapes of policy and critic.
    pub fn shapes(&self) -> (&Mlp, &Mlp) {
        (&self.policy_shape, &self.critic_shape)
    }

    /// alpha, the first agent's.
    pub fn temperature(&self) -> f64 {
        self.log_temperature[0].f64().exp()
    }

    /// Multiply-adds that one agent's update cannot do without: what a floor on its time is computed from.
    pub fn multiply_adds(&self) -> usize {
        let (policy, critic) = (&self.policy_shape, &self.critic_shape);
        // Back through the hidden layers; the way to the input stops at the action's columns.
        let inner = |shape: &Mlp, columns: usize| {
            let first = shape.hidden_sizes()[0];
            shape.multiply_adds() - shape.inputs() * first + columns * first
        };
        let a = self.dimensions.action;
        let critics = 4 * critic.multiply_adds() + inner(critic, 0) + inner(critic, a);
        self.batch * (3 * policy.multiply_adds() + inner(policy, 0) + self.dimensions.critics() * critics)
    }

    /// One update of critics, policy and temperature. `multiplier [P]` is lambda, `rate` the learning rate.
    pub fn update(&mut self, batch: &Batch<T>, multiplier: &[T], rate: f64) -> UpdateMetrics {
        let mut metrics = UpdateMetrics::default();
        self.critic_targets(batch);
        self.update_critics(batch, rate, &mut metrics);
        self.update_policy(batch, multiplier, rate, &mut metrics);
        self.update_temperature(rate);
        metrics
    }

    /// `y_R = r + gamma (1 - d) (min Q_R(s', h', a') - alpha log pi(a' | s', h'))` and
    /// `y_psi = log P + gamma (1 - d) min Q_psi(s', h', a')`, with a' drawn from the policy at (s', h').
    ///
    /// The listing prints P for log P; the derivation of Q_psi has log P. A sum of floored scores lies in [floor, 0], and so
    /// does its target.
    fn critic_targets(&mut self, batch: &Batch<T>) {
        let (b, twins) = (self.batch, self.dimensions.critics());
        self.act(&batch.next_state, &batch.noise[0]);
        self.critic_shape.forward(&self.target_critics, &self.work.critic_input, twins, &mut self.work.critics);
        let work = &mut self.work;
        for p in 0..self.dimensions.population {
            let q = &work.critics.output()[p * twins * b..][..twins * b];
            let (y_reward, y_safety) = work.targets[p * 2 * b..][..2 * b].split_at_mut(b);
            let (reward, goes_on) = (&batch.reward[p * b..], &batch.goes_on[p * b..]);
            let temperature = self.log_temperature[p].exp();
            twin_min(&q[..b], &q[b..], y_reward);
            for i in 0..b {
                let value = y_reward[i] - temperature * work.log_prob[p * b + i];
                y_reward[i] = reward[i] + self.discount * goes_on[i] * value;
            }
            if self.dimensions.safety {
                let score = &batch.score[p * b..];
                twin_min(&q[2 * b..], &q[3 * b..], y_safety);
                for i in 0..b {
                    let y = score[i] + self.discount * goes_on[i] * y_safety[i];
                    y_safety[i] = y.max(self.floor).min(T::ZERO);
                }
            }
        }
    }

    /// One step down `(Q - y)^2` for each critic, then the target networks follow.
    fn update_critics(&mut self, batch: &Batch<T>, rate: f64, metrics: &mut UpdateMetrics) {
        let (b, twins) = (self.batch, self.dimensions.critics());
        let work = &mut self.work;
        join(&batch.state, &batch.action, self.dimensions, &mut work.critic_input);
        self.critic_shape.forward(&self.critics, &work.critic_input, twins, &mut work.critics);
        let (q, gradient) = work.critics.output_and_gradient();
        for (critic, (q, gradient)) in q.chunks_exact(b).zip(gradient.chunks_exact_mut(b)).enumerate() {
            let (p, which) = (critic / twins, critic % twins / 2);
            let loss = mse(q, &work.targets[(2 * p + which) * b..][..b], gradient);
            let sum = [&mut metrics.reward_critic_loss, &mut metrics.safety_critic_loss];
            *sum[which] += loss.f64() / self.dimensions.population as f64;
        }
        self.critic_shape.backward(
            &self.critics,
            &work.critic_input,
            twins,
            &mut work.critics,
            &mut work.critic_gradients,
        );
        let adam = &mut self.optimisers[1];
        adam.step_polyak(&mut self.critics, &work.critic_gradients, rate, &mut self.target_critics, self.polyak);
    }

    /// One step UP `min Q_R + lambda min Q_psi - alpha log pi` at actions drawn from the policy at (s, h), divided by
    /// 1 + lambda so that a large multiplier does not mean large steps.
    fn update_policy(&mut self, batch: &Batch<T>, multiplier: &[T], rate: f64, metrics: &mut UpdateMetrics) {
        let Dimensions { action, population, safety, .. } = self.dimensions;
        let (b, twins) = (self.batch, self.dimensions.critics());
        self.act(&batch.state, &batch.noise[1]);
        let work = &mut self.work;
        self.critic_shape.forward(&self.critics, &work.critic_input, twins, &mut work.critics);
        let mean = T::of(1.0 / b as f64);
        let (q, gradient) = work.critics.output_and_gradient();
        for p in 0..population {
            let (q, gradient) = (&q[p * twins * b..][..twins * b], &mut gradient[p * twins * b..][..twins * b]);
            let shrink = T::ONE / (T::ONE + multiplier[p]);
            for pair in 0..twins / 2 {
                let weight = [T::ONE, multiplier[p]][pair] * shrink * mean;
                let (q1, q2) = q[2 * pair * b..][..2 * b].split_at(b);
                let (d1, d2) = gradient[2 * pair * b..][..2 * b].split_at_mut(b);
                twin_min_backward(q1, q2, -weight, d1, d2); // minus: the optimiser goes down, the objective goes up
                twin_min(q1, q2, &mut work.targets[(2 * p + pair) * b..][..b]);
            }
        }
        let columns = self.dimensions.state;
        self.critic_shape.backward_input(&self.critics, &mut work.critics, columns, &mut work.critic_action_gradient);
        let share = T::of(1.0 / (population * b) as f64);
        for p in 0..population {
            // The action's gradient is the sum over the agent's critics: the unselected twins gave zeros.
            let of_critics = &work.critic_action_gradient[p * twins * b * action..][..twins * b * action];
            let sum = &mut work.action_gradient[p * b * action..][..b * action];
            sum.copy_from_slice(&of_critics[..b * action]);
            for one in of_critics.chunks_exact(b * action).skip(1) {
                sum.iter_mut().zip(one).for_each(|(s, g)| *s += *g);
            }
            let d_log_prob = self.log_temperature[p].exp() * mean / (T::ONE + multiplier[p]);
            let width = 2 * b * action;
            let (head, d_head) = work.policy.output_and_gradient();
            gaussian::sample_backward(
                &head[p * width..][..width],
                &batch.noise[1][p * b * action..][..b * action],
                self.clip,
                &work.actions[p * b * action..][..b * action],
                sum,
                d_log_prob,
                action,
                &mut d_head[p * width..][..width],
            );
            let total = |x: &[T]| (x[..b].iter().copied().sum::<T>() * share).f64();
            metrics.q_reward += total(&work.targets[2 * p * b..]);
            metrics.q_safety += if safety { total(&work.targets[(2 * p + 1) * b..]) } else { 0.0 };
            metrics.entropy -= total(&work.log_prob[p * b..]);
        }
        self.policy_shape.backward(&self.policy, &batch.state, 1, &mut work.policy, &mut work.policy_gradients);
        self.optimisers[0].step(&mut self.policy, &work.policy_gradients, rate, 1.0);
        kernels::polyak(&mut self.averaged_policy, &self.policy, self.averaging);
    }

    /// One step down `-alpha (log pi + target entropy)`, on the actions the policy step drew.
    fn update_temperature(&mut self, rate: f64) {
        let b = self.batch;
        let mean = T::of(1.0 / b as f64);
        let work = &mut self.work;
        for (p, gradient) in work.temperature_gradients.iter_mut().enumerate() {
            let log_prob: T = work.log_prob[p * b..][..b].iter().copied().sum();
            *gradient = -self.log_temperature[p].exp() * (log_prob * mean + self.target_entropy);
        }
        self.optimisers[2].step(&mut self.log_temperature, &work.temperature_gradients, rate, 1.0);
    }

    /// Draws the policy's actions at `state` and joins them to it as the critics' input.
    fn act(&mut self, state: &[T], noise: &[T]) {
        let work = &mut self.work;
        self.policy_shape.forward(&self.policy, state, 1, &mut work.policy);
        gaussian::sample(work.policy.output(), noise, self.clip, &mut work.actions, &mut work.log_prob);
        join(state, &work.actions, self.dimensions, &mut work.critic_input);
    }
}

impl Dimensions {
    /// Critics an agent has: twins for the reward, twins for safety.
    pub fn critics(&self) -> usize {
        if self.safety { 4 } else { 2 }
    }
}

/// Rows `(s, h, a)`.
fn join<T: Scalar>(state: &[T], action: &[T], d: Dimensions, out: &mut [T]) {
    let rows = state.chunks_exact(d.state).zip(action.chunks_exact(d.action));
    for (out, (state, action)) in out.chunks_exact_mut(d.state + d.action).zip(rows) {
        out[..d.state].copy_from_slice(state);
        out[d.state..].copy_from_slice(action);
    }
}
