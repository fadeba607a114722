//! Adam over arrays. Target networks and averaged policies are updated in the same pass.

use super::vectors::vectorised;
use super::{Buffer, Cpu};
use crate::Scalar;
use crate::adam::AdamNumbers;
use crate::work::{AdamStep, Parameters};

pub(super) fn adam<T: Scalar>(
    p: &mut Parameters<Cpu<T>>,
    step: &AdamStep<'_, Cpu<T>>,
    mut follower: Option<(&mut Buffer<T>, f64)>,
) {
    for owner in (0..p.owners).filter(|owner| step.active[*owner] != T::ZERO) {
        let mut numbers = AdamNumbers::new(step.settings, step.rate[owner], step.correction[owner]);
        let of = |buffer: Option<&Buffer<T>>| buffer.map_or(T::ONE, |buffer| buffer[owner]);
        (numbers.shrink, numbers.factor) = (of(step.shrink), of(step.factor));
        let range = owner * p.each..(owner + 1) * p.each;
        let [m, v] = &mut p.moments;
        let (w, g) = (&mut p.values[range.clone()], &p.gradients[range.clone()]);
        let (m, v) = (&mut m[range.clone()], &mut v[range.clone()]);
        match &mut follower {
            None => plain(w, g, m, v, numbers),
            Some((follower, share)) => following(w, g, m, v, numbers, &mut follower[range], T::of(*share)),
        }
    }
}

fn plain<T: Scalar>(w: &mut [T], g: &[T], m: &mut [T], v: &mut [T], numbers: AdamNumbers<T>) {
    vectorised(
        #[inline(always)]
        || {
            for (((w, g), m), v) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()) {
                numbers.step(w, *g, m, v);
            }
        },
    );
}

fn following<T: Scalar>(
    w: &mut [T],
    g: &[T],
    m: &mut [T],
    v: &mut [T],
    numbers: AdamNumbers<T>,
    follower: &mut [T],
    share: T,
) {
    vectorised(
        #[inline(always)]
        || {
            for ((((w, g), m), v), f) in w.iter_mut().zip(g).zip(m.iter_mut()).zip(v.iter_mut()).zip(follower) {
                numbers.step(w, *g, m, v);
                *f = share.fma(*w - *f, *f);
            }
        },
    );
}
