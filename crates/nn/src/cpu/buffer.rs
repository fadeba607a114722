//! An array that starts at a cache line, so that vector loads cross as few lines as possible; in memory or in a
//! temporary file.
#![allow(unsafe_code, reason = "numbers of a mapped file are read as a slice")]
#![expect(clippy::disallowed_methods, reason = "the one place for arrays in files")]

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::NonNull;

use memmap2::MmapMut;

use crate::Scalar;

/// An array of fixed length. New memory is zeroed by the operating system on first use, so a table that is larger than
/// needed costs no memory.
#[derive(Debug)]
pub struct Buffer<T> {
    start: NonNull<T>,
    len: usize,
    _memory: Memory<T>,
}

/// What owns the numbers; it is only dropped.
#[derive(Debug)]
enum Memory<T> {
    Vec { _numbers: Vec<T> },
    File { _mapping: MmapMut },
}

// SAFETY: a buffer owns its numbers and hands them out like a `Vec` does.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Buffer<T> {}

const LINE: usize = 64;

impl<T: Scalar> Buffer<T> {
    /// An array of `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let mut numbers = vec![T::ZERO; len.checked_add(spare).expect("the length of a buffer")];
        let aligned = numbers.as_ptr().align_offset(LINE).min(spare);
        Self { start: NonNull::from(&mut numbers[aligned..]).cast(), len, _memory: Memory::Vec { _numbers: numbers } }
    }

    /// An array of `len` zeros in a temporary file without a name in `folder`. The operating system keeps those parts in
    /// memory that are in use.
    pub fn zeros_in_file(len: usize, folder: &Path) -> std::io::Result<Self> {
        if len == 0 {
            return Ok(Self::zeros(0)); // an empty file cannot be mapped
        }
        let bytes = len.checked_mul(size_of::<T>()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let file = tempfile::tempfile_in(folder)?;
        // The blocks are reserved now: a full disk later would end the process without a message.
        #[cfg(target_os = "linux")]
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)?;
        file.set_len(bytes as u64)?;
        // SAFETY: the file has no name, so nothing else can change or shorten it.
        let mut mapping = unsafe { MmapMut::map_mut(&file)? };
        // A mapping begins at a page, and zero bytes are the number zero.
        let start = NonNull::from(&mut mapping[..]).cast();
        Ok(Self { start, len, _memory: Memory::File { _mapping: mapping } })
    }
}

/// A copy is in memory, also that of a buffer in a file.
impl<T: Scalar> Clone for Buffer<T> {
    fn clone(&self) -> Self {
        Self::from(&**self)
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
        // SAFETY: `start` is the first of `len` initialised numbers of `_memory`, which never moves or shrinks.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; the buffer is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
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
