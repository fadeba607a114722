//! Adam and AdamW against their formulas, followers, clipping, and owners that share nothing.

mod common;

use common::*;
use prudence_nn::cpu::Buffer;
use prudence_nn::work::{AdamStep, Parameters};
use prudence_nn::{AdamSettings, Cpu, Device as _, Scalar};

const RATE: f64 = 1e-2;
/// Not a whole number of vectors.
const EACH: usize = 61;

/// Parameters of some owners, what follows them, and the number of the step.
struct Optimiser<T: Scalar> {
    p: Parameters<Cpu<T>>,
    follower: Buffer<T>,
    /// Per owner.
    t: Vec<u64>,
}

/// What steers an owner's step.
#[derive(Clone, Copy)]
struct Steering {
    rate: f64,
    decay: f64,
    factor: f64,
    active: bool,
}

impl<T: Scalar> Optimiser<T> {
    fn new(owners: usize) -> Self {
        let n = owners * EACH;
        let mut p = Parameters::new(&Cpu::new(), owners, &vec![0.0; n]).unwrap();
        p.values = buffer(&numbers(31, n, 1.0));
        Self { p, follower: buffer(&numbers(32, n, 1.0)), t: vec![0; owners] }
    }

    fn step(&mut self, gradient: &[f64], steering: &[Steering], polyak: Option<f64>) {
        let (d, settings) = (Cpu::new(), AdamSettings::default());
        self.p.gradients = buffer(gradient);
        self.t.iter_mut().zip(steering).for_each(|(t, s)| *t += u64::from(s.active));
        let of = |f: &dyn Fn(usize, &Steering) -> f64| {
            buffer(&steering.iter().enumerate().map(|(owner, s)| f(owner, s)).collect::<Vec<_>>())
        };
        let correction = |owner: usize, s: &Steering| settings.correction(s.rate, self.t[owner]);
        let step = AdamStep {
            settings,
            rate: &of(&|owner, s| correction(owner, s).0),
            correction: &of(&|owner, s| correction(owner, s).1),
            active: &of(&|_, s| f64::from(u8::from(s.active))),
            shrink: Some(&of(&|_, s| 1.0 - s.rate * s.decay)),
            factor: Some(&of(&|_, s| s.factor)),
        };
        d.adam(&mut self.p, &step, polyak.map(|share| (&mut self.follower, share)));
    }

    fn numbers(&self, owner: usize) -> [Vec<T>; 4] {
        let [m, v] = &self.p.moments;
        [&self.p.values, m, v, &self.follower].map(|x| x[owner * EACH..][..EACH].to_vec())
    }
}

const PLAIN: Steering = Steering { rate: RATE, decay: 0.0, factor: 1.0, active: true };
const DECAYED: Steering = Steering { decay: 0.02, factor: 0.7, ..PLAIN };

fn run<T: Scalar>(steering: Steering) -> [Vec<T>; 4] {
    let mut optimiser = Optimiser::new(1);
    (0..6).for_each(|step| optimiser.step(&numbers(40 + step, EACH, 0.3), &[steering], Some(0.1)));
    optimiser.numbers(0)
}

#[test]
fn f32_equals_f64() {
    run::<f32>(DECAYED).iter().zip(run::<f64>(DECAYED)).for_each(|(x, exact)| assert_close_in_f32(x, &exact));
}

/// The formulas as they stand in the papers (Kingma & Ba; Loshchilov & Hutter), a weight at a time.
#[test]
fn adam_and_adamw_follow_their_formulas() {
    let AdamSettings { beta1, beta2, epsilon } = AdamSettings::default();
    for steering in [PLAIN, DECAYED] {
        let [w, m, v, target] = run::<f64>(steering);
        let (start, target_start) = (numbers(31, EACH, 1.0), numbers(32, EACH, 1.0));
        for i in 0..EACH {
            let (mut x, mut mi, mut vi, mut y) = (start[i], 0.0, 0.0, target_start[i]);
            for step in 0..6 {
                let g = steering.factor * numbers(40 + step, EACH, 0.3)[i];
                mi = beta1 * mi + (1.0 - beta1) * g;
                vi = beta2 * vi + (1.0 - beta2) * g * g;
                let t = step as i32 + 1;
                let (m_hat, v_hat) = (mi / (1.0 - beta1.powi(t)), vi / (1.0 - beta2.powi(t)));
                x -= RATE * steering.decay * x;
                x -= RATE * m_hat / (v_hat.sqrt() + epsilon);
                y = 0.9 * y + 0.1 * x;
            }
            for (ours, theirs) in [(w[i], x), (m[i], mi), (v[i], vi), (target[i], y)] {
                assert!((ours - theirs).abs() < 1e-13, "weight {i}: {ours} != {theirs}");
            }
        }
    }
}

fn following_in_the_same_walk_equals_following_after_it<T: Scalar>() {
    let (mut together, mut apart) = (Optimiser::<T>::new(1), Optimiser::<T>::new(1));
    for step in 0..4 {
        let g = numbers(60 + step, EACH, 1.0);
        together.step(&g, &[PLAIN], Some(0.05));
        apart.step(&g, &[PLAIN], None);
        for (y, w) in apart.follower.iter_mut().zip(&apart.p.values) {
            *y = T::of(0.05).fma(*w - *y, *y);
        }
    }
    assert_eq!(together.numbers(0).map(|x| bits(&x)), apart.numbers(0).map(|x| bits(&x)));
}

#[test]
fn a_step_with_a_follower_equals_a_step_that_is_then_followed() {
    following_in_the_same_walk_equals_following_after_it::<f32>();
    following_in_the_same_walk_equals_following_after_it::<f64>();
}

#[test]
fn owners_share_nothing_and_inactive_ones_keep_their_numbers() {
    let steering = |owner: usize, step: u64| Steering {
        rate: RATE / (1 + owner) as f64,
        decay: 0.1 * owner as f64,
        factor: 0.4 + 0.2 * owner as f64,
        active: owner == 0 || (owner == 1 && step % 3 != 1) || (owner == 2 && step > 3),
    };
    let mut together = Optimiser::<f32>::new(3);
    let mut alone = [0, 1, 2].map(|owner| {
        let mut optimiser = Optimiser::<f32>::new(1);
        optimiser.p.values.copy_from_slice(&together.p.values[owner * EACH..][..EACH]);
        optimiser.follower.copy_from_slice(&together.follower[owner * EACH..][..EACH]);
        optimiser
    });
    for step in 0..8 {
        let g = numbers(80 + step, 3 * EACH, 0.5);
        together.step(&g, &[0, 1, 2].map(|owner| steering(owner, step)), Some(0.2));
        for (owner, alone) in alone.iter_mut().enumerate() {
            // Alone it is not asked at all where it sits out.
            if steering(owner, step).active {
                alone.step(&g[owner * EACH..][..EACH], &[steering(owner, step)], Some(0.2));
            }
            assert_eq!(together.numbers(owner), alone.numbers(0), "owner {owner}, step {step}");
        }
    }
}

#[test]
fn clipping_brings_each_owners_norm_down_to_the_limit() {
    for each in [1, 7, 8, 9, 64, 101] {
        let (d, owners) = (Cpu::<f64>::new(), 3);
        let mut gradients = numbers(121, owners * each, 3.0);
        gradients[each..2 * each].iter_mut().for_each(|g| *g *= 1e-6);
        let (limit, mut factor) = (0.01, unwritten(owners));
        d.clip(&buffer(&gradients), owners, limit, &mut factor);
        for (owner, factor) in factor.iter().enumerate() {
            // Every number is counted once.
            let squares: f64 = gradients[owner * each..][..each].iter().map(|x| x * x).sum();
            if squares.sqrt() <= limit {
                assert_eq!((*factor, owner), (1.0, 1), "{each} numbers");
            } else {
                let seen = (limit / factor).powi(2);
                assert!((seen - squares).abs() <= 1e-14 * squares, "{each} numbers: {seen}, exact {squares}");
            }
        }
    }
}

#[test]
fn a_gradient_that_is_not_finite_is_not_clipped_away() {
    for bad in [f64::NAN, f64::INFINITY] {
        let mut factor = unwritten(1);
        Cpu::<f32>::new().clip(&buffer(&[1.0, bad, 2.0]), 1, 1.0, &mut factor);
        let clipped = [1.0, bad as f32, 2.0].map(|g| g * factor[0]);
        assert!(clipped.iter().any(|g| g.is_nan()), "{clipped:?}");
    }
}
