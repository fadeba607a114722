//! Arrays in the GPU's memory.

use std::marker::PhantomData;
use std::sync::Arc;

use prudence_nn::DeviceError;

use crate::queue::Queue;

/// An array of 4-byte numbers in the GPU's memory, freed when it is dropped.
pub struct Array<T> {
    queue: Arc<dyn Queue>,
    start: u64,
    len: usize,
    numbers: PhantomData<T>,
}

/// The type of an array's numbers.
pub trait Number: Copy + Default + 'static {
    /// The numbers as bytes.
    fn bytes(numbers: &[Self]) -> &[u8];
    /// The same, mutably.
    fn bytes_mut(numbers: &mut [Self]) -> &mut [u8];
}

macro_rules! number {
    ($number:ty) => {
        impl Number for $number {
            #[allow(unsafe_code, reason = "numbers are copied as bytes")]
            fn bytes(numbers: &[Self]) -> &[u8] {
                // SAFETY: every byte of a number is initialised.
                unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
            }

            #[allow(unsafe_code, reason = "numbers are copied as bytes")]
            fn bytes_mut(numbers: &mut [Self]) -> &mut [u8] {
                // SAFETY: as above, and any bytes are a number.
                unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), size_of_val(numbers)) }
            }
        }
    };
}

number!(f32);
number!(u32);

impl<T: Number> Array<T> {
    /// An array of `len` zeros.
    pub(crate) fn zeros(queue: &Arc<dyn Queue>, len: usize) -> Result<Self, DeviceError> {
        let bytes = len.saturating_mul(size_of::<T>());
        let start = if len == 0 { 0 } else { queue.allocate(bytes)? };
        Ok(Self { queue: queue.clone(), start, len, numbers: PhantomData })
    }

    /// How many numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the numbers `at..at + n`, which must be inside.
    pub(crate) fn part(&self, at: usize, n: usize) -> u64 {
        assert!(at + n <= self.len, "numbers {at}..{} of an array of {}", at + n, self.len);
        self.start + (at * size_of::<T>()) as u64
    }

    /// The address of the first of at least `n` numbers.
    pub(crate) fn first(&self, n: usize) -> u64 {
        self.part(0, n)
    }

    pub(crate) fn write(&self, at: usize, from: &[T]) {
        if !from.is_empty() {
            self.queue.upload(self.part(at, from.len()), T::bytes(from));
        }
    }

    pub(crate) fn read(&self, at: usize, to: &mut [T]) -> Result<(), DeviceError> {
        if to.is_empty() { Ok(()) } else { self.queue.download(self.part(at, to.len()), T::bytes_mut(to)) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        if self.len > 0 {
            self.queue.free(self.start, self.len * size_of::<T>());
        }
    }
}
