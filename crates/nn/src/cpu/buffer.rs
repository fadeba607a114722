//! An array that starts at a cache line, so that vector loads cross as few lines as possible.

use std::ops::{Deref, DerefMut};

use crate::Scalar;

/// An array of fixed length. New memory is zeroed by the operating system on first use, so a table that is larger than
/// needed costs no memory.
#[derive(Debug)]
pub struct Buffer<T> {
    data: Vec<T>,
    start: usize,
    len: usize,
}

const LINE: usize = 64;

impl<T: Scalar> Buffer<T> {
    /// An array of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let data = vec![T::ZERO; len + spare];
        let start = data.as_ptr().align_offset(LINE).min(spare);
        Self { data, start, len }
    }
}

impl<T: Scalar> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeros(self.len);
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Scalar> From<&[T]> for Buffer<T> {
    fn from(numbers: &[T]) -> Self {
        let mut buffer = Self::zeros(numbers.len());
        buffer.copy_from_slice(numbers);
        buffer
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        &self.data[self.start..self.start + self.len]
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..self.start + self.len]
    }
}

impl<'a, T> IntoIterator for &'a Buffer<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Buffer<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}
