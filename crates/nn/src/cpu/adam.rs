//! Adam and AdamW as PyTorch computes them, target networks and averages in the same walk over the arrays.

use super::{Cpu, vectorised};
use crate::Scalar;
use crate::work::{AdamStep, Parameters};

/// The numbers one owner's step needs.
#[derive(Clone, Copy)]
struct Step<T> {
    /// The gradient's share in the first moment, `1 - beta1`.
    gain1: T,
    beta2: T,
    /// The square's share in the second moment, `1 - beta2`: in f32 that difference is wrong in its fifth digit.
    gain2: T,
    rate: T,
    correction: T,
    epsilon: T,
    shrink: T,
    factor: T,
}

pub(super) fn adam<T: Scalar>(
    p: &mut Parameters<Cpu<T>>,
    step: &AdamStep<'_, Cpu<T>>,
    mut follower: Option<(&mut Vec<T>, f64)>,
) {
    let s = step.settings;
    for owner in (0..p.owners).filter(|owner| step.active[*owner] != T::ZERO) {
        let of = |buffer: Option<&Vec<T>>| buffer.map_or(T::ONE, |buffer| buffer[owner]);
        let step = Step {
            gain1: T::of(1.0 - s.beta1),
            beta2: T::of(s.beta2),
            gain2: T::of(1.0 - s.beta2),
            rate: step.rate[owner],
            correction: step.correction[owner],
            epsilon: T::of(s.epsilon),
            shrink: of(step.shrink),
            factor: of(step.factor),
        };
        let range = owner * p.each..(owner + 1) * p.each;
        let [m, v] = &mut p.moments;
        let (w, g) = (&mut p.values[range.clone()], &p.gradients[range.clone()]);
        let (m, v) = (&mut m[range.clone()], &mut v[range.clone()]);
        match &mut follower {
            None => plain(w, g, m, v, step),
            Some((follower, share)) => following(w, g, m, v, step, &mut follower[range], T::of(*share)),
        }
    }
}

fn plain<T: Scalar>(w: &mut [T], g: &[T], m: &mut [T], v: &mut [T], s: Step<T>) {
    vectorised(
        #[inline(always)]
        || {
            for (((w, g), m), v) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()) {
                one(w, *g, m, v, s);
            }
        },
    );
}

fn following<T: Scalar>(w: &mut [T], g: &[T], m: &mut [T], v: &mut [T], s: Step<T>, follower: &mut [T], share: T) {
    vectorised(
        #[inline(always)]
        || {
            for ((((w, g), m), v), f) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()).zip(follower) {
                one(w, *g, m, v, s);
                *f = share.fma(*w - *f, *f);
            }
        },
    );
}

#[inline(always)]
fn one<T: Scalar>(w: &mut T, g: T, m: &mut T, v: &mut T, s: Step<T>) {
    let gradient = g * s.factor;
    *m = s.gain1.fma(gradient - *m, *m);
    *v = s.beta2.fma(*v, s.gain2 * gradient * gradient);
    *w = *w * s.shrink - s.rate * *m / v.sqrt().fma(s.correction, s.epsilon);
}
