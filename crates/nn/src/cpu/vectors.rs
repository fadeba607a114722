//! Which vector extension kernels run on.
//!
//! Every kernel gives the same bits at any width: sums along a vector have a fixed number of lanes, all others run in the
//! same order for each element. So runs stay comparable between machines, and the choice is about speed alone.

use std::sync::atomic::{AtomicU8, Ordering};

use pulp::{Simd, WithSimd};

/// A vector extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// One number at a time.
    None,
    /// 256 bits (x86-64-v3); elsewhere, whatever there is.
    Wide,
    /// 512 bits (x86-64-v4).
    Widest,
}

impl Vectors {
    /// The name people know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Wide if cfg!(target_arch = "x86_64") => "avx2",
            Self::Wide => "native",
            Self::Widest => "avx512",
        }
    }

    /// The widest this CPU has.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            match (pulp::x86::V4::try_new(), pulp::x86::V3::try_new()) {
                (Some(_), _) => Self::Widest,
                (None, Some(_)) => Self::Wide,
                (None, None) => Self::None,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::Wide
    }

    /// What kernels use now.
    pub fn current() -> Self {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        match chosen {
            1 => Self::None,
            2 => Self::Wide,
            3 => Self::Widest,
            _ => {
                let widest = Self::detect();
                widest.choose();
                widest
            }
        }
    }

    /// Holds kernels to this extension, or to the widest there is if the CPU lacks it; for measuring and tests.
    pub fn hold(self) {
        self.min(Self::detect()).choose();
    }

    fn choose(self) {
        CHOSEN.store(1 + self as u8, Ordering::Relaxed);
    }
}

/// 0 until somebody asked.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Runs an operation with the vectors in use.
#[inline(always)]
pub(crate) fn dispatch<Op: WithSimd>(op: Op) -> Op::Output {
    let current = Vectors::current();
    #[cfg(target_arch = "x86_64")]
    {
        if current == Vectors::Widest
            && let Some(v4) = pulp::x86::V4::try_new()
        {
            return Simd::vectorize(v4, op);
        }
        if current >= Vectors::Wide
            && let Some(v3) = pulp::x86::V3::try_new()
        {
            return Simd::vectorize(v3, op);
        }
        Simd::vectorize(pulp::Scalar::new(), op)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = current;
        pulp::Arch::new().dispatch(op)
    }
}

/// Runs `f` compiled for the vectors in use; `f` must be inlined for that to have an effect.
#[inline(always)]
pub(crate) fn vectorised<R>(f: impl FnOnce() -> R) -> R {
    struct Task<F>(F);
    impl<R, F: FnOnce() -> R> WithSimd for Task<F> {
        type Output = R;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> R {
            (self.0)()
        }
    }
    dispatch(Task(f))
}
