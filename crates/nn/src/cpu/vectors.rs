//! The vector extension that kernels use.
//!
//! Every kernel gives the same bits at any width: sums along a vector have a fixed number of lanes, and other sums have
//! the same order for each element. The choice affects only the speed, so runs are comparable between machines.

use std::sync::atomic::{AtomicU8, Ordering};

use pulp::{Simd, WithSimd};

/// A vector extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vectors {
    /// One number at a time.
    None,
    /// 256 bits (x86-64-v3); on other architectures, the native width.
    Wide,
    /// 512 bits (x86-64-v4).
    Widest,
}

impl Vectors {
    /// The common name of the extension.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Wide if cfg!(target_arch = "x86_64") => "avx2",
            Self::Wide => "native",
            Self::Widest => "avx512",
        }
    }

    /// The widest extension of this CPU.
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

    /// The extension that kernels use.
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

    /// Makes kernels use this extension, or the widest available one if the CPU does not have it; for measurements and
    /// tests.
    pub fn hold(self) {
        self.min(Self::detect()).choose();
    }

    fn choose(self) {
        CHOSEN.store(1 + self as u8, Ordering::Relaxed);
    }
}

/// The extension in use, plus 1; 0 before the first use.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Runs an operation with the current vector extension.
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

/// Runs `f`, compiled for the current vector extension; `f` must be inlined for that to have an effect.
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
