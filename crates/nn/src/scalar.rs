//! The number type of every kernel: f32 in the product, f64 where gradients are checked.
//!
//! The f32 functions are our own: branch-free, so that the loops around them become vector code, and accurate to a few
//! units in the last place (tested against f64). Those of libm take one number at a time.

use std::cell::RefCell;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use pulp::Simd;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 or f64.
pub trait Scalar:
    sealed::Sealed
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// 0
    const ZERO: Self;
    /// 1
    const ONE: Self;
    /// The smallest positive normal number.
    const TINY: Self;
    /// Gradients and first moments smaller than this are set to 0. They are far too small to move a weight, but would decay
    /// into denormal numbers, on which many processors are a hundred times slower. Its square is still a normal number.
    const NEGLIGIBLE: Self;
    /// The type's name in safetensors files.
    const DTYPE: safetensors::Dtype;
    /// A vector of these numbers.
    type Vector<S: Simd>: Copy;

    /// Numbers in a vector.
    fn lanes<S: Simd>() -> usize;
    /// A vector with this number in every lane.
    fn splat<S: Simd>(s: S, x: Self) -> Self::Vector<S>;
    /// `a * b + c`, rounded once.
    fn mul_add<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>, c: Self::Vector<S>) -> Self::Vector<S>;
    /// `a + b`
    fn plus<S: Simd>(s: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `zero` where `sign <= 0`, else `value`. A NaN in `sign` keeps `value`, so that divergence stays visible.
    fn keep_where_positive<S: Simd>(
        s: S,
        sign: Self::Vector<S>,
        value: Self::Vector<S>,
        zero: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// A vector that begins with these numbers; the remaining lanes are 0.
    fn load<S: Simd>(s: S, from: &[Self]) -> Self::Vector<S>;
    /// Stores the vector's first `to.len()` numbers.
    fn store<S: Simd>(s: S, to: &mut [Self], x: Self::Vector<S>);
    /// Calls `f` with this thread's scratch array.
    fn scratch<R>(f: impl FnOnce(&mut Vec<Self>) -> R) -> R;

    /// The nearest number of this type.
    fn of(x: f64) -> Self;
    /// The same number in f64.
    fn f64(self) -> f64;
    /// The same number in this type.
    fn from_f32(x: f32) -> Self;
    /// The nearest f32.
    fn to_f32(self) -> f32;
    /// Whether it is neither infinite nor NaN.
    fn finite(self) -> bool;
    /// `self * a + b`, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
    /// The absolute value.
    fn abs(self) -> Self;
    /// e to the power of self.
    fn exp(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// `ln(1 + self)` for self in [0, 1].
    fn ln_1p_unit(self) -> Self;
    /// The little-endian bytes, appended.
    fn write(self, to: &mut Vec<u8>);
    /// From little-endian bytes of exactly this type's size.
    fn read(bytes: &[u8]) -> Self;

    /// The larger of two numbers; NaN if `self` is NaN, so that divergence stays visible.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// The smaller of two numbers; NaN if `self` is NaN.
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        if self > other { other } else { self }
    }

    /// 0 if the absolute value is smaller than `limit`, else the number itself; without a branch.
    #[inline(always)]
    fn flush(self, limit: Self) -> Self {
        if self.abs() < limit { Self::ZERO } else { self }
    }

    /// `1 / (1 + exp(-self))`
    #[inline(always)]
    fn sigmoid(self) -> Self {
        Self::ONE / (Self::ONE + (-self).exp())
    }

    /// `ln(1 + exp(self))`, stable on both sides.
    #[inline(always)]
    fn softplus(self) -> Self {
        self.max(Self::ZERO) + (-self.abs()).exp().ln_1p_unit()
    }
}

impl Scalar for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const TINY: Self = f64::MIN_POSITIVE;
    const NEGLIGIBLE: Self = 1e-140;
    const DTYPE: safetensors::Dtype = safetensors::Dtype::F64;
    type Vector<S: Simd> = S::f64s;

    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::F64_LANES
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, x: Self) -> S::f64s {
        s.splat_f64s(x)
    }
    #[inline(always)]
    fn mul_add<S: Simd>(s: S, a: S::f64s, b: S::f64s, c: S::f64s) -> S::f64s {
        s.mul_add_f64s(a, b, c)
    }
    #[inline(always)]
    fn plus<S: Simd>(s: S, a: S::f64s, b: S::f64s) -> S::f64s {
        s.add_f64s(a, b)
    }
    #[inline(always)]
    fn keep_where_positive<S: Simd>(s: S, sign: S::f64s, value: S::f64s, zero: S::f64s) -> S::f64s {
        s.select_f64s(s.less_than_or_equal_f64s(sign, zero), zero, value)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self]) -> S::f64s {
        s.partial_load_f64s(from)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [Self], x: S::f64s) {
        s.partial_store_f64s(to, x);
    }
    fn scratch<R>(f: impl FnOnce(&mut Vec<Self>) -> R) -> R {
        thread_local!(static SCRATCH: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) });
        SCRATCH.with_borrow_mut(f)
    }

    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        f64::from(x)
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f64::abs(self)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        f64::exp(self)
    }
    #[inline(always)]
    fn tanh(self) -> Self {
        f64::tanh(self)
    }
    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        f64::ln_1p(self)
    }
    fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        let mut raw = [0; 8];
        raw.copy_from_slice(bytes);
        f64::from_le_bytes(raw)
    }
}

impl Scalar for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;
    const TINY: Self = f32::MIN_POSITIVE;
    const NEGLIGIBLE: Self = 1e-16;
    const DTYPE: safetensors::Dtype = safetensors::Dtype::F32;
    type Vector<S: Simd> = S::f32s;

    #[inline(always)]
    fn lanes<S: Simd>() -> usize {
        S::F32_LANES
    }
    #[inline(always)]
    fn splat<S: Simd>(s: S, x: Self) -> S::f32s {
        s.splat_f32s(x)
    }
    #[inline(always)]
    fn mul_add<S: Simd>(s: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        s.mul_add_f32s(a, b, c)
    }
    #[inline(always)]
    fn plus<S: Simd>(s: S, a: S::f32s, b: S::f32s) -> S::f32s {
        s.add_f32s(a, b)
    }
    #[inline(always)]
    fn keep_where_positive<S: Simd>(s: S, sign: S::f32s, value: S::f32s, zero: S::f32s) -> S::f32s {
        s.select_f32s(s.less_than_or_equal_f32s(sign, zero), zero, value)
    }
    #[inline(always)]
    fn load<S: Simd>(s: S, from: &[Self]) -> S::f32s {
        s.partial_load_f32s(from)
    }
    #[inline(always)]
    fn store<S: Simd>(s: S, to: &mut [Self], x: S::f32s) {
        s.partial_store_f32s(to, x);
    }
    fn scratch<R>(f: impl FnOnce(&mut Vec<Self>) -> R) -> R {
        thread_local!(static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) });
        SCRATCH.with_borrow_mut(f)
    }

    #[inline(always)]
    fn of(x: f64) -> Self {
        x as f32
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn finite(self) -> bool {
        self.is_finite()
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul_add(a, b)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> Self {
        f32::abs(self)
    }

    /// `2^n e^r`, where n is the integer nearest to `x / ln 2` and `|r| <= ln(2) / 2`; `e^r` by its Taylor polynomial of
    /// degree 7.
    #[inline(always)]
    fn exp(self) -> Self {
        const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding and subtracting it rounds to an integer
        let x = Scalar::min(Scalar::max(self, -87.0), 88.0);
        let shifted = x * std::f32::consts::LOG2_E + MAGIC;
        let n = shifted - MAGIC;
        let r = n.mul_add(-0.693_359_4, x);
        let r = n.mul_add(2.121_944_4e-4, r);
        let p = r.mul_add(1.0 / 5040.0, 1.0 / 720.0);
        let p = p.mul_add(r, 1.0 / 120.0);
        let p = p.mul_add(r, 1.0 / 24.0);
        let p = p.mul_add(r, 1.0 / 6.0);
        let p = p.mul_add(r, 0.5);
        let p = p.mul_add(r * r, r) + 1.0;
        // n is an integer in [-126, 127]: with the bias it is the exponent field of a float. It is read from the bits of
        // the shifted number, because a conversion, which handles NaN, is not vectorised.
        let scale = f32::from_bits((shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(127)) << 23);
        if self.is_nan() { self } else { p * scale }
    }

    /// An odd polynomial near 0, where `1 - 2 / (e^2x + 1)` would lose digits.
    #[inline(always)]
    fn tanh(self) -> Self {
        let z = self * self;
        let p = z.mul_add(-5.704_988_7e-3, 2.063_909e-2);
        let p = p.mul_add(z, -5.373_971e-2);
        let p = p.mul_add(z, 1.333_144_2e-1);
        let p = p.mul_add(z, -3.333_328e-1);
        let small = (p * z).mul_add(self, self);
        let e = Scalar::exp(2.0 * self.abs());
        let large = (1.0 - 2.0 / (e + 1.0)).copysign(self);
        if self.abs() < 0.625 { small } else { large }
    }

    /// The series of `2 artanh(t / (2 + t))`, which keeps its relative accuracy down to the smallest t.
    #[inline(always)]
    fn ln_1p_unit(self) -> Self {
        let s = self / (2.0 + self);
        let z = s * s; // <= 1/9
        let p = z.mul_add(1.0 / 15.0, 1.0 / 13.0);
        let p = p.mul_add(z, 1.0 / 11.0);
        let p = p.mul_add(z, 1.0 / 9.0);
        let p = p.mul_add(z, 1.0 / 7.0);
        let p = p.mul_add(z, 1.0 / 5.0);
        let p = p.mul_add(z, 1.0 / 3.0);
        2.0 * (p * z).mul_add(s, s)
    }
    fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.to_le_bytes());
    }
    fn read(bytes: &[u8]) -> Self {
        let mut raw = [0; 4];
        raw.copy_from_slice(bytes);
        f32::from_le_bytes(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::Scalar;

    fn worst(range: std::ops::Range<i32>, scale: f64, f: impl Fn(f32) -> f32, g: impl Fn(f64) -> f64) -> f64 {
        range
            .map(|i| (f64::from(i) * scale) as f32)
            .map(|x| (f64::from(f(x)), g(f64::from(x))))
            .map(|(a, b)| (a - b).abs() / b.abs().max(1e-30))
            .fold(0.0, f64::max)
    }

    #[test]
    fn f32_functions_are_accurate_to_a_few_units_in_the_last_place() {
        assert!(worst(-86_000..86_000, 1e-3, Scalar::exp, f64::exp) < 3e-7);
        assert!(worst(-100_000..100_000, 1e-4, Scalar::tanh, f64::tanh) < 3e-7);
        assert!(worst(1..100_000, 1e-5, Scalar::ln_1p_unit, f64::ln_1p) < 3e-7);
        assert!(worst(1..1_000, 1e-12, Scalar::ln_1p_unit, f64::ln_1p) < 3e-7);
        assert!(worst(-80_000..80_000, 1e-3, Scalar::softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p()) < 5e-7);
        assert!(worst(-80_000..80_000, 1e-3, Scalar::sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 5e-7);
    }

    #[test]
    fn f32_functions_pass_nan_on_and_saturate() {
        assert!(Scalar::max(f32::NAN, 0.0).is_nan() && Scalar::min(f32::NAN, 0.0).is_nan());
        assert!(Scalar::exp(f32::NAN).is_nan() && Scalar::tanh(f32::NAN).is_nan());
        assert_eq!(Scalar::tanh(1e9f32), 1.0);
        assert_eq!(Scalar::tanh(-1e9f32), -1.0);
        assert!(Scalar::exp(-1e9f32) < 1e-37 && Scalar::exp(1e9f32).is_finite());
    }
}
