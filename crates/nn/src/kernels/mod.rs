//! The kernels: everything that touches arrays on the way of an update.
//!
//! A learner reaches arrays only through these functions, so that another set of them (CUDA) can stand in. They are
//! generic over [`Scalar`](crate::Scalar), allocate nothing of their own, and use the widest vectors the CPU has (chosen at run time, so that one
//! binary serves all machines). A kernel's result does not depend on threads: it runs on the caller's.

mod elementwise;
mod matrix;

pub use elementwise::*;
pub use matrix::*;

/// Runs `f` compiled for the best vector extension this CPU has; `f` must be inlined for that to have an effect.
#[inline(always)]
pub(crate) fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    struct Task<F>(F);
    impl<R, F: FnOnce() -> R> pulp::NullaryFnOnce for Task<F> {
        type Output = R;
        #[inline(always)]
        fn call(self) -> R {
            (self.0)()
        }
    }
    pulp::Arch::new().dispatch(Task(f))
}
